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
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// tree makes files with these contents below a new folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for file, content := range files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// members lists the layer of an archive: mode, path and contents or target.
func members(t *testing.T, file, tag string) []string {
	t.Helper()
	ref, err := name.NewTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(file, &ref)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.ModTime.Unix() != 0 {
			t.Errorf("%s belongs to %d:%d and is of %v", header.Name, header.Uid, header.Gid, header.ModTime)
		}
		list = append(list, strings.TrimSpace(fmt.Sprintf("%04o %s %s%s", header.Mode, header.Name, data, header.Linkname)))
	}
}

func TestWrite(t *testing.T) {
	dir := tree(t, map[string]string{"bin/app": "app", "etc/a.conf": "a", "etc/sub/b.conf": "b"})
	if err := os.Symlink("a.conf", filepath.Join(dir, "etc", "link")); err != nil {
		t.Fatal(err)
	}
	spec := Spec{
		Tag:        "docker.io/memslice/test:dev",
		Entrypoint: []string{"/usr/bin/app"}, Cmd: []string{"-v"}, Env: []string{"A=b"}, User: "1:2",
		Files: []File{
			{Source: filepath.Join(dir, "bin", "app"), Path: "/usr/bin/app", Mode: 0o755},
			{Source: filepath.Join(dir, "etc"), Path: "/etc/app"},
		},
		Links: []Link{{Target: "app", Path: "/usr/bin/alias"}},
		Dirs:  []Dir{{Path: "/tmp", Mode: 0o777 | fs.ModeSticky}},
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := spec.Write(file); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"0755 etc/",
		"0755 etc/app/",
		"0644 etc/app/a.conf a",
		"0777 etc/app/link a.conf",
		"0755 etc/app/sub/",
		"0644 etc/app/sub/b.conf b",
		"1777 tmp/",
		"0755 usr/",
		"0755 usr/bin/",
		"0777 usr/bin/alias app",
		"0755 usr/bin/app app",
	}
	if diff := cmp.Diff(want, members(t, file, spec.Tag)); diff != "" {
		t.Error(diff)
	}
	ref, err := name.NewTag(spec.Tag)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(file, &ref)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	got := []any{config.Config.Entrypoint, config.Config.Cmd, config.Config.Env, config.Config.User, config.OS}
	if diff := cmp.Diff([]any{[]string{"/usr/bin/app"}, []string{"-v"}, []string{"A=b"}, "1:2", "linux"}, got); diff != "" {
		t.Error(diff)
	}
}

// Neither times, nor the order in which things are named, nor the folder's place
// make another image.
func TestReproducible(t *testing.T) {
	files := map[string]string{"a": "1", "b/c": "2", "b/d": "3"}
	write := func(reverse bool, age time.Duration) []byte {
		dir := tree(t, files)
		for file := range files {
			then := time.Now().Add(-age)
			if err := os.Chtimes(filepath.Join(dir, file), then, then); err != nil {
				t.Fatal(err)
			}
		}
		list := []File{{Source: filepath.Join(dir, "a"), Path: "/x"}, {Source: filepath.Join(dir, "b"), Path: "/y"}}
		if reverse {
			list[0], list[1] = list[1], list[0]
		}
		out := filepath.Join(t.TempDir(), "image.tar")
		if err := (Spec{Tag: "docker.io/memslice/test:dev", Files: list}).Write(out); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if !bytes.Equal(write(false, 0), write(true, 1000*time.Hour)) {
		t.Error("two images of the same files differ")
	}
}

func TestRefusals(t *testing.T) {
	dir := tree(t, map[string]string{"f": "x"})
	file := filepath.Join(dir, "f")
	const tag = "docker.io/memslice/test:dev"
	for _, tt := range []struct {
		name string
		spec Spec
		err  string
	}{
		{"no tag", Spec{Tag: "docker.io/memslice/test"}, "image name"},
		{"relative path", Spec{Tag: tag, Files: []File{{Source: file, Path: "f"}}}, `"f" in the image must be absolute`},
		{"no such file", Spec{Tag: tag, Files: []File{{Source: file + "x", Path: "/f"}}}, file + "x"},
		{"file as a folder", Spec{Tag: tag, Files: []File{{Source: file, Path: "/f"}, {Source: file, Path: "/f/g"}}}, "/f is to be a folder"},
		{"device", Spec{Tag: tag, Files: []File{{Source: "/dev/null", Path: "/null"}}}, "neither a file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "image.tar")
			err := tt.spec.Write(out)
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("an archive was written")
			}
		})
	}
}

func TestApplets(t *testing.T) {
	want := []Link{{"busybox", "/bin/ls"}, {"busybox", "/bin/["}}
	if diff := cmp.Diff(want, applets("busybox\nls\n[\n")); diff != "" {
		t.Error(diff)
	}
}
