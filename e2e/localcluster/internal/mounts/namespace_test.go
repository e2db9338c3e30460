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
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNamespace(t *testing.T) {
	mountable(t)
	dir, short := t.TempDir(), filepath.Join(t.TempDir(), "short")
	if err := Bind(dir, short); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Unshort(short); err != nil {
			t.Error(err)
		}
	})
	source, shadowed := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "inside"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shadowed, "outside"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := Namespace{Pin: filepath.Join(short, "mntns")}
	if n.Exists() {
		t.Fatal("exists before it was made")
	}
	if _, err := n.Info(); err == nil {
		t.Error("a namespace that does not exist has an identity")
	}
	if err := n.Create([]Shadow{{Path: shadowed, Source: source}}); err != nil {
		t.Fatal(err)
	}
	if !n.Exists() {
		t.Fatal("does not exist after it was made")
	}

	list := func(dir string) (names string) {
		err := n.Do(func() error {
			// A program, as the node's are: it must inherit the namespace.
			out, err := exec.Command("ls", dir).Output()
			names = strings.TrimSpace(string(out))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if got := list(shadowed); got != "inside" {
		t.Errorf("inside, the folder holds %q", got)
	}
	if _, err := os.Stat(filepath.Join(shadowed, "outside")); err != nil {
		t.Errorf("outside, the folder has changed: %v", err)
	}

	// What is mounted inside stays inside.
	inner := t.TempDir()
	if err := n.Do(func() error { return unix.Mount("test", inner, "tmpfs", 0, "") }); err != nil {
		t.Fatal(err)
	}
	table, err := Table()
	if err != nil {
		t.Fatal(err)
	}
	if points := At(table, inner); len(points) != 0 {
		t.Errorf("a mount of the namespace is seen outside: %v", points)
	}
	info, err := n.Info()
	if err != nil {
		t.Fatal(err)
	}
	if own, err := os.Stat("/proc/self/ns/mnt"); err != nil || os.SameFile(own, info) {
		t.Errorf("this process is in the namespace: %v", err)
	}
}

func TestDoWithoutNamespace(t *testing.T) {
	n := Namespace{Pin: filepath.Join(t.TempDir(), "none")}
	ran := false
	if err := n.Do(func() error { ran = true; return nil }); err == nil || ran {
		t.Errorf("ran %v, error %v", ran, err)
	}
}

// The table of the process, which is that of its first thread, stays as it is
// whichever thread a probe ran on.
func TestProbesLeaveNoTrace(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for range 20 {
		// Either may fail without root; none may leave anything.
		_ = Probe()
		_ = ProbeOverlay(dir)
	}
	if after, err := os.Readlink("/proc/self/ns/mnt"); err != nil || after != before {
		t.Errorf("the namespace was %s and is %s: %v", before, after, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}
