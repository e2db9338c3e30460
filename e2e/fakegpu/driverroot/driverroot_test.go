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

package driverroot

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// newRoot makes a driver root whose NVML is any file.
func newRoot(t *testing.T, preset string) (*Root, *state.State) {
	t.Helper()
	p, err := catalog.LookupPreset(preset)
	if err != nil {
		t.Fatal(err)
	}
	s, err := state.New(p, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	root := At(filepath.Join(t.TempDir(), "root"))
	if err := state.Open(root.StateDir()).Create(s, true, nil); err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(t.TempDir(), "lib.so")
	if err := os.WriteFile(library, sharedObject(elf.EM_X86_64, nvmlLibrary), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := root.Install(library); err != nil {
		t.Fatal(err)
	}
	sync(t, root, s)
	return root, s
}

func sync(t *testing.T, root *Root, s *state.State) {
	t.Helper()
	if err := root.Sync(s); err != nil {
		t.Fatal(err)
	}
}

// devices lists what is in the root's dev.
func devices(t *testing.T, root *Root) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(root.join("dev"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, strings.TrimPrefix(path, root.join("dev")+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestDevicesFollowState(t *testing.T) {
	control := []string{"nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"}
	// Only the first two GPUs have MIG.
	root, s := newRoot(t, "mixed")
	for _, step := range []struct {
		name   string
		change func() error
		gpus   int
		caps   []int
	}{
		{"new", func() error { return nil }, 6, []int{1, 272}},
		{"one without MIG removed", func() error { return s.Remove("3") }, 5, []int{1, 272}},
		{"one with MIG removed", func() error { return s.Remove("0") }, 4, []int{1, 137}},
		{"none with MIG left", func() error { return s.Remove("0") }, 3, nil},
		{"unloaded", func() error { s.UnloadDriver(); return nil }, 0, nil},
		{"loaded", func() error { s.LoadDriver(); return nil }, 3, nil},
		{"MIG behind others", func() error { move(s); return s.Add(s.GPUs[5].UUID) }, 4, []int{1, 2, 408, 542}},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		sync(t, root, s)
		var want []string
		if s.Driver.Loaded {
			want = slices.Clone(control)
		}
		for minor := range step.gpus {
			want = append(want, fmt.Sprintf("nvidia%d", minor))
		}
		for ranges := step.caps; len(ranges) > 0; ranges = ranges[2:] {
			for minor := ranges[0]; minor <= ranges[1]; minor++ {
				want = append(want, fmt.Sprintf("nvidia-caps/nvidia-cap%d", minor))
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, devices(t, root)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// move puts the first GPU behind the others.
func move(s *state.State) { s.GPUs = append(s.GPUs[1:], s.GPUs[0]) }

// TestDeviceNodes checks the nodes themselves: what they are depends on who
// may make them.
func TestDeviceNodes(t *testing.T) {
	root, _ := newRoot(t, "a100x8")
	for _, n := range []node{{"nvidia1", 195, 1}, {"nvidiactl", 195, 255}, {"nvidia-caps/nvidia-cap128", 508, 128}} {
		path := filepath.Join(root.join("dev"), n.name)
		info, err := os.Stat(path)
		if err != nil || info.Mode()&fs.ModeCharDevice == 0 || info.Mode().Perm() != 0o666 {
			t.Errorf("%s is no device for everyone: %v, %v", n.name, info, err)
		}
		if isDevice(path, n) == root.Placeholders() {
			t.Errorf("%s: device node %t, placeholders %t", n.name, isDevice(path, n), root.Placeholders())
		}
	}
}

func TestSyncRepairs(t *testing.T) {
	root, s := newRoot(t, "t4")
	cuda := filepath.Join(root.join(LibDir()), "libcuda.so.1")
	want, err := os.ReadFile(cuda)
	if err != nil {
		t.Fatal(err)
	}
	device := root.join("dev/nvidia0")
	if err := os.Remove(device); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{cuda, device} {
		if err := os.WriteFile(path, []byte("damaged"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sync(t, root, s)
	if got, err := os.ReadFile(cuda); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the damaged library was not renewed: %v", err)
	}
	if info, err := os.Stat(device); err != nil || info.Mode()&fs.ModeCharDevice == 0 {
		t.Errorf("the damaged device was not renewed: %v, %v", info, err)
	}
}

func TestLibraryAbsent(t *testing.T) {
	root, s := newRoot(t, "t4")
	s.Driver.LibraryAbsent = true
	sync(t, root, s)
	left, err := filepath.Glob(filepath.Join(root.join(LibDir()), "libnvidia-ml*"))
	if err != nil || len(left) > 0 {
		t.Errorf("still there: %v, %v", left, err)
	}
	s.Driver.LibraryAbsent = false
	sync(t, root, s)
	if _, err := os.Stat(filepath.Join(root.join(LibDir()), nvmlLibrary)); err != nil {
		t.Error(err)
	}
}

// TestLdconfig runs the real ldconfig, as NVIDIA's hook does in containers.
func TestLdconfig(t *testing.T) {
	ldconfig, err := exec.LookPath("ldconfig")
	if err != nil {
		ldconfig = "/sbin/ldconfig"
	}
	dir := t.TempDir()
	machine := platforms[runtime.GOARCH].machine
	for _, name := range driverLibraries {
		if err := os.WriteFile(filepath.Join(dir, versioned(name, "580.95.05")), sharedObject(machine, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cache := filepath.Join(t.TempDir(), "ld.so.cache")
	output, err := exec.Command(ldconfig, "-C", cache, "-f", os.DevNull, dir).CombinedOutput()
	if err != nil || len(output) > 0 {
		t.Errorf("ldconfig complains: %v\n%s", err, output)
	}
	for _, name := range driverLibraries {
		if target, err := os.Readlink(filepath.Join(dir, name)); err != nil || target != versioned(name, "580.95.05") {
			t.Errorf("ldconfig made no link %s: %q, %v", name, target, err)
		}
	}
	listed, err := exec.Command(ldconfig, "-C", cache, "-p").Output()
	if err != nil || !strings.Contains(string(listed), filepath.Join(dir, "libcuda.so.1")) {
		t.Errorf("the cache lacks libcuda: %v\n%s", err, listed)
	}
}

// TestLoads has the real dynamic linker load the objects.
func TestLoads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(path, sharedObject(platforms[runtime.GOARCH].machine, "libcuda.so.1"), 0o644); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("/bin/true")
	command.Env = append(os.Environ(), "LD_PRELOAD="+path)
	if output, err := command.CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("the dynamic linker complains: %v\n%s", err, output)
	}
}

func TestDestroy(t *testing.T) {
	root, _ := newRoot(t, "t4")
	if err := root.Destroy(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root.path); !os.IsNotExist(err) {
		t.Errorf("the root is still there: %v", err)
	}
	other := t.TempDir()
	if err := At(other).Destroy(); err == nil || !strings.Contains(err.Error(), "no simulated driver root") {
		t.Errorf("destroying another folder = %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

// TestClearKeepsMounts: containers hold on to the root and its state
// directory, so those stay the same directories.
func TestClearKeepsMounts(t *testing.T) {
	root, s := newRoot(t, "t4")
	inodes := func() []any {
		var all []any
		for _, path := range []string{root.path, root.StateDir()} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, info)
		}
		return all
	}
	before := inodes()
	if err := root.Clear(); err != nil {
		t.Fatal(err)
	}
	sync(t, root, s)
	for i, after := range inodes() {
		if !os.SameFile(before[i].(fs.FileInfo), after.(fs.FileInfo)) {
			t.Errorf("directory %d is another one", i)
		}
	}
}
