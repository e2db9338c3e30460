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
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	amd64   = 62
	aarch64 = 183
)

// makeELF returns a minimal 64-bit ELF file that asks for a loader, if one is
// named, and for libraries: program headers, a dynamic section and its strings.
func makeELF(machine uint16, interpreter string, needed ...string) []byte {
	stringTable := []byte{0}
	var dynamic bytes.Buffer
	for _, lib := range needed {
		put(&dynamic, int64(1), uint64(len(stringTable))) // DT_NEEDED
		stringTable = append(append(stringTable, lib...), 0)
	}
	put(&dynamic, int64(0), uint64(0)) // DT_NULL

	const header, section, segment = 64, 64, 56
	interp := append([]byte(interpreter), 0)
	interpAt := uint64(header + segment)
	stringsAt := interpAt + uint64(len(interp))
	dynamicAt := stringsAt + uint64(len(stringTable))
	sectionsAt := dynamicAt + uint64(dynamic.Len())
	segments := uint16(0)
	if interpreter != "" {
		segments = 1
	}
	var file bytes.Buffer
	file.Write([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	put(&file, uint16(3), machine, uint32(1), uint64(0), uint64(header), sectionsAt, uint32(0),
		uint16(header), uint16(segment), segments, uint16(section), uint16(3), uint16(1))
	put(&file, uint32(3), uint32(4), interpAt, uint64(0), uint64(0), uint64(len(interp)), uint64(len(interp)), uint64(1)) // PT_INTERP
	file.Write(interp)
	file.Write(stringTable)
	file.Write(dynamic.Bytes())
	file.Write(make([]byte, section)) // no section
	put(&file, uint32(0), uint32(3), uint64(0), uint64(0), stringsAt, uint64(len(stringTable)), uint32(0), uint32(0), uint64(1), uint64(0))
	put(&file, uint32(0), uint32(6), uint64(0), uint64(0), dynamicAt, uint64(dynamic.Len()), uint32(1), uint32(0), uint64(8), uint64(16))
	return file.Bytes()
}

func put(b *bytes.Buffer, values ...any) {
	for _, value := range values {
		_ = binary.Write(b, binary.LittleEndian, value) // to memory
	}
}

// machineRoot is a file system like Debian's: the loader is a link, libraries are
// in folders of ld.so.conf.d, and one of another architecture comes first.
func machineRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for file, data := range map[string][]byte{
		"etc/ld.so.conf":                  []byte("# comment\ninclude /etc/ld.so.conf.d/*.conf\n"),
		"etc/ld.so.conf.d/1.conf":         []byte("/usr/local/lib # first\n"),
		"etc/ld.so.conf.d/2.conf":         []byte("include /etc/ld.so.conf\n/lib/x86_64-linux-gnu\n"),
		"lib/x86_64-linux-gnu/ld.so":      makeELF(amd64, ""),
		"lib/x86_64-linux-gnu/libc.so.6":  makeELF(amd64, "", "ld-linux-x86-64.so.2"),
		"usr/local/lib/libc.so.6":         makeELF(aarch64, ""),
		"usr/local/lib/liba.so.1":         makeELF(amd64, "", "libb.so.1", "libc.so.6"),
		"usr/lib/libb.so.1":               makeELF(amd64, "", "liba.so.1"),
		"lib/x86_64-linux-gnu/libdl.so.2": makeELF(amd64, "", "libc.so.6"),
		"app":                             makeELF(amd64, "/lib64/ld-linux-x86-64.so.2", "liba.so.1", "libc.so.6"),
		"static":                          makeELF(amd64, ""),
		"broken":                          makeELF(amd64, "/lib64/ld-linux-x86-64.so.2", "libnone.so.1"),
		"script":                          []byte("#!/bin/sh\n"),
	} {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "lib64"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../lib/x86_64-linux-gnu/ld.so", filepath.Join(root, "lib64", "ld-linux-x86-64.so.2")); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestClosure(t *testing.T) {
	root := machineRoot(t)
	at := func(source, path string) File {
		return File{Source: filepath.Join(root, source), Path: path, Mode: 0o755}
	}
	const libs = "/lib/x86_64-linux-gnu/"
	for _, tt := range []struct {
		name  string
		file  string
		extra []string
		want  []File
	}{
		{"static", "static", nil, []File{at("static", "/bin/app")}},
		{"dynamic, next to libc", "app", nil, []File{
			at("app", "/bin/app"), at("lib64/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"),
			at("usr/local/lib/liba.so.1", libs+"liba.so.1"), at("usr/lib/libb.so.1", libs+"libb.so.1"), at("lib/x86_64-linux-gnu/libc.so.6", libs+"libc.so.6"),
		}},
		{"opened at run time", "app", []string{"libdl.so.2"}, []File{
			at("app", "/bin/app"), at("lib64/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"),
			at("usr/local/lib/liba.so.1", libs+"liba.so.1"), at("usr/lib/libb.so.1", libs+"libb.so.1"),
			at("lib/x86_64-linux-gnu/libc.so.6", libs+"libc.so.6"), at("lib/x86_64-linux-gnu/libdl.so.2", libs+"libdl.so.2"),
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Libraries{Root: root}.Closure(filepath.Join(root, tt.file), "/bin/app", tt.extra)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestClosureRefusals(t *testing.T) {
	root := machineRoot(t)
	for _, tt := range []struct {
		name, file string
		extra      []string
		err        []string
	}{
		{"needed library is missing", "broken", nil, []string{"broken", "libnone.so.1", "/usr/local/lib, /lib/x86_64-linux-gnu, /lib64"}},
		{"named library is missing", "app", []string{"libx.so"}, []string{"libx.so"}},
		{"no program", "script", nil, []string{"script"}},
		{"no file", "nothing", nil, []string{"nothing"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Libraries{Root: root}.Closure(filepath.Join(root, tt.file), "/bin/app", tt.extra)
			for _, want := range tt.err {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q", err, want)
				}
			}
		})
	}
}
