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

// Package image assembles container images from files of this machine, without
// Docker and without a registry. The same files give the same image, byte for
// byte. It knows nothing of what is in them.
package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Spec is an image with one layer.
type Spec struct {
	Tag        string // full name, as pods refer to it
	Entrypoint []string
	Cmd        []string
	Env        []string // NAME=value
	User       string   // as in a Dockerfile's USER
	Files      []File
	Links      []Link
	Dirs       []Dir
}

// File is a file of this machine, or a folder with all that is below it.
type File struct {
	Source string
	Path   string      // in the image, absolute
	Mode   fs.FileMode // 0: as on this machine
}

// Link is a symlink in the image.
type Link struct{ Target, Path string }

// Dir is an empty folder in the image. Folders that files need exist anyway.
type Dir struct {
	Path string
	Mode fs.FileMode
}

// entry is one member of the layer.
type entry struct {
	source string // of a file's contents
	target string // of a symlink
	mode   fs.FileMode
}

// Write writes the image as an archive that `docker load` and `ctr images
// import` read. The file is never seen half-written.
func (s Spec) Write(file string) error {
	tag, err := name.NewTag(s.Tag, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("image name: %w", err)
	}
	entries, err := s.entries()
	if err != nil {
		return err
	}
	layer, err := newLayer(entries)
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return fmt.Errorf("assemble image %s: %w", s.Tag, err)
	}
	img, err = mutate.ConfigFile(img, s.config(layer))
	if err != nil {
		return fmt.Errorf("assemble image %s: %w", s.Tag, err)
	}
	temp := file + ".tmp"
	defer os.Remove(temp)
	if err := tarball.WriteToFile(temp, tag, img); err != nil {
		return fmt.Errorf("write image %s to %s: %w", s.Tag, file, err)
	}
	if err := os.Rename(temp, file); err != nil {
		return fmt.Errorf("write image %s to %s: %w", s.Tag, file, err)
	}
	return nil
}

func (s Spec) config(layer v1.Layer) *v1.ConfigFile {
	// The layer was computed from memory, so it has an identity.
	diffID, _ := layer.DiffID()
	return &v1.ConfigFile{
		Architecture: runtime.GOARCH,
		OS:           "linux",
		Created:      v1.Time{Time: time.Unix(0, 0).UTC()},
		Config:       v1.Config{Entrypoint: s.Entrypoint, Cmd: s.Cmd, Env: s.Env, User: s.User},
		RootFS:       v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{diffID}},
	}
}

// entries collects the members of the layer by path, with the folders that they
// are in. What comes later replaces what is there.
func (s Spec) entries() (map[string]entry, error) {
	entries := map[string]entry{}
	add := func(p string, e entry) error {
		if !path.IsAbs(p) {
			return fmt.Errorf("path %q in the image must be absolute", p)
		}
		p = path.Clean(p)
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			if old, ok := entries[dir]; ok && !old.mode.IsDir() {
				return fmt.Errorf("%s is to be a folder in the image, for %s, but it is a file already", dir, p)
			}
			if _, ok := entries[dir]; !ok {
				entries[dir] = entry{mode: fs.ModeDir | 0o755}
			}
		}
		entries[p] = e
		return nil
	}
	for _, d := range s.Dirs {
		if err := add(d.Path, entry{mode: fs.ModeDir | d.Mode}); err != nil {
			return nil, err
		}
	}
	for _, f := range s.Files {
		if err := f.walk(add); err != nil {
			return nil, fmt.Errorf("add %s to the image: %w", f.Source, err)
		}
	}
	for _, l := range s.Links {
		if err := add(l.Path, entry{target: l.Target, mode: fs.ModeSymlink | 0o777}); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// walk adds the file, or the folder's contents. A symlink given as such is
// followed; one inside a folder stays one.
func (f File) walk(add func(string, entry) error) error {
	root, err := filepath.EvalSymlinks(f.Source)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := path.Join(f.Path, filepath.ToSlash(strings.TrimPrefix(p, root)))
		mode := info.Mode()
		switch {
		case d.IsDir():
			return add(target, entry{mode: fs.ModeDir | mode.Perm()})
		case mode&fs.ModeSymlink != 0:
			link, err := os.Readlink(p)
			if err != nil {
				return err
			}
			return add(target, entry{target: link, mode: fs.ModeSymlink | 0o777})
		case !mode.IsRegular():
			return fmt.Errorf("%s is neither a file, a folder nor a symlink", p)
		}
		if f.Mode != 0 {
			mode = f.Mode
		}
		return add(target, entry{source: p, mode: mode.Perm()})
	})
}

// newLayer writes the entries in the order of their paths, owned by root and
// dated to the beginning of time.
func newLayer(entries map[string]entry) (v1.Layer, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	paths := make([]string, 0, len(entries))
	for p := range entries {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		if err := writeEntry(w, p, entries[p]); err != nil {
			return nil, fmt.Errorf("add %s to the image: %w", p, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("finish the image's layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil }
	// The archive does not travel: speed counts, size does not.
	layer, err := tarball.LayerFromOpener(open, tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, fmt.Errorf("make the image's layer: %w", err)
	}
	return layer, nil
}

func writeEntry(w *tar.Writer, p string, e entry) error {
	header := &tar.Header{
		Name:    strings.TrimPrefix(p, "/"),
		Mode:    int64(e.mode.Perm()),
		ModTime: time.Unix(0, 0).UTC(),
		Format:  tar.FormatPAX,
	}
	if e.mode&fs.ModeSticky != 0 {
		header.Mode |= 0o1000
	}
	switch {
	case e.mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
		return w.WriteHeader(header)
	case e.mode&fs.ModeSymlink != 0:
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.target
		return w.WriteHeader(header)
	}
	data, err := os.ReadFile(e.source)
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeReg, int64(len(data))
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}
