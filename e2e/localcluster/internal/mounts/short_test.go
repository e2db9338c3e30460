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

package mounts

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLink(t *testing.T) {
	dir, short := t.TempDir(), filepath.Join(t.TempDir(), "short")
	for range 2 { // the second time it exists
		if err := Link(dir, short); err != nil {
			t.Fatal(err)
		}
		if !same(dir, short) {
			t.Fatal("the link leads elsewhere")
		}
	}
	other := t.TempDir()
	if err := Link(other, short); err != nil || !same(other, short) {
		t.Errorf("a link to an earlier folder was not replaced: %v", err)
	}
	for range 2 {
		if err := Unshort(short); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(short); err == nil {
		t.Error("the link is still there")
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("the folder itself is gone: %v", err)
	}
}

func TestLinkDoesNotReplaceFolders(t *testing.T) {
	short := t.TempDir()
	if err := os.WriteFile(filepath.Join(short, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Link(t.TempDir(), short); err == nil {
		t.Error("a folder with a file was replaced")
	}
}

func TestBind(t *testing.T) {
	mountable(t)
	dir, short := t.TempDir(), filepath.Join(t.TempDir(), "short")
	t.Cleanup(func() { _ = Unshort(short) })
	for range 2 {
		if err := Bind(dir, short); err != nil {
			t.Fatal(err)
		}
	}
	table, err := Table()
	if err != nil {
		t.Fatal(err)
	}
	if points := At(table, short); len(points) != 1 {
		t.Errorf("mounted %d times", len(points))
	}
	other := t.TempDir()
	if err := Bind(other, short); err != nil || !same(other, short) {
		t.Errorf("a mount of an earlier folder was not replaced: %v", err)
	}
	if err := Unshort(short); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(short); err == nil {
		t.Error("the mount point is still there")
	}
}

// mountable skips what needs root.
func mountable(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if err := Probe(); err != nil {
		t.Skipf("mounts are not possible here: %v", err)
	}
}
