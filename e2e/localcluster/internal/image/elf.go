// Copyright The memslice Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package image

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Libraries finds shared libraries as the dynamic loader of a machine does.
type Libraries struct {
	// Root is the root of the file system that is searched: "/", or another one
	// in tests.
	Root string
}

// Closure returns a program as path, together with its loader and all shared
// libraries that it needs, and those of extra (by their names, such as
// libdl.so.2), which it may open at run time. A static program needs none.
func (l Libraries) Closure(source, path string, extra []string) ([]File, error) {
	program, err := readELF(source)
	if err != nil {
		return nil, err
	}
	files := []File{{Source: source, Path: path, Mode: 0o755}}
	if program.interpreter == "" && len(extra) == 0 {
		return files, nil
	}
	if program.interpreter != "" {
		files = append(files, File{Source: filepath.Join(l.Root, program.interpreter), Path: program.interpreter, Mode: 0o755})
	}
	dirs, err := l.dirs()
	if err != nil {
		return nil, err
	}
	found := map[string]string{} // by name
	wanted := append(slices.Clone(program.needed), extra...)
	for len(wanted) > 0 {
		lib := wanted[0]
		wanted = wanted[1:]
		if found[lib] != "" || lib == filepath.Base(program.interpreter) {
			continue
		}
		file, needed, err := l.find(lib, program.kind, dirs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		found[lib] = file
		wanted = append(wanted, needed...)
	}
	return append(files, l.place(found)...), nil
}

// place puts every library where libc is: that folder the loader searches
// without a cache, which the image does not have.
func (l Libraries) place(found map[string]string) []File {
	var files []File
	for name, file := range found {
		dir := filepath.Dir(file)
		if libc := found["libc.so.6"]; libc != "" {
			dir = filepath.Dir(libc)
		}
		inImage := "/" + strings.Trim(strings.TrimPrefix(dir, l.Root), "/")
		files = append(files, File{Source: file, Path: filepath.Join(inImage, name), Mode: 0o755})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files
}

// find returns the file of a library of this kind and what it needs in turn.
func (l Libraries) find(lib string, kind elfKind, dirs []string) (string, []string, error) {
	for _, dir := range dirs {
		file := filepath.Join(l.Root, dir, lib)
		header, err := readELF(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		if header.kind == kind { // not, say, the 32-bit one
			return file, header.needed, nil
		}
	}
	return "", nil, fmt.Errorf("shared library %s is in none of %s", lib, strings.Join(dirs, ", "))
}

// dirs lists the folders of /etc/ld.so.conf and then those built into loaders.
func (l Libraries) dirs() ([]string, error) {
	dirs, err := l.configured("/etc/ld.so.conf", 0)
	if err != nil {
		return nil, err
	}
	var unique []string
	for _, dir := range append(dirs, "/lib64", "/usr/lib64", "/lib", "/usr/lib") {
		if !slices.Contains(unique, dir) {
			unique = append(unique, dir)
		}
	}
	return unique, nil
}

const deepestInclude = 8 // ends includes that go round in circles

func (l Libraries) configured(conf string, depth int) ([]string, error) {
	file, err := os.Open(filepath.Join(l.Root, conf))
	if errors.Is(err, os.ErrNotExist) || depth > deepestInclude {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the loader's configuration: %w", err)
	}
	defer file.Close()
	var dirs []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "include" && len(fields) > 1:
			included, err := l.included(conf, fields[1], depth)
			if err != nil {
				return nil, err
			}
			dirs = append(dirs, included...)
		default:
			dirs = append(dirs, fields[0])
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the loader's configuration %s: %w", conf, err)
	}
	return dirs, nil
}

func (l Libraries) included(conf, pattern string, depth int) ([]string, error) {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(filepath.Dir(conf), pattern)
	}
	files, err := filepath.Glob(filepath.Join(l.Root, pattern))
	if err != nil {
		return nil, fmt.Errorf("include %s in %s: %w", pattern, conf, err)
	}
	var dirs []string
	for _, file := range files {
		more, err := l.configured(strings.TrimPrefix(file, strings.TrimSuffix(l.Root, "/")), depth+1)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, more...)
	}
	return dirs, nil
}

// elfKind tells apart libraries that cannot be used together.
type elfKind struct {
	class   elf.Class
	machine elf.Machine
}

type elfHeader struct {
	kind        elfKind
	interpreter string
	needed      []string
}

func readELF(file string) (elfHeader, error) {
	opened, err := os.Open(file)
	if err != nil {
		return elfHeader{}, fmt.Errorf("open program or library: %w", err)
	}
	defer opened.Close()
	f, err := elf.NewFile(opened)
	if err != nil {
		return elfHeader{}, fmt.Errorf("read program or library %s: %w", file, err)
	}
	header := elfHeader{kind: elfKind{f.Class, f.Machine}}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			data, err := io.ReadAll(p.Open())
			if err != nil {
				return elfHeader{}, fmt.Errorf("read the loader's name in %s: %w", file, err)
			}
			header.interpreter = strings.TrimRight(string(data), "\x00")
		}
	}
	header.needed, err = f.ImportedLibraries()
	if err != nil {
		return elfHeader{}, fmt.Errorf("read what %s needs: %w", file, err)
	}
	return header, nil
}
