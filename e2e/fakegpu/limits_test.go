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

package fakegpu

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

const (
	gib   = uint64(1 << 30)
	total = uint64(81559 << 20) // of an H100
	most  = uint64(nvml.DEVICE_MEMORY_LIMIT_MAX)
)

// limiter is a driver that limits cgroups, and its first GPU.
func limiter(t *testing.T) (*fakegputest.Driver, nvml.Interface, nvml.Device) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("limits are for root to set")
	}
	driver := fakegputest.New(t, "h100x8-r615")
	library := load(t, driver)
	return driver, library, get[nvml.Device](t)(library.DeviceGetHandleByIndex(0))
}

// Limits as NVML's header describes them, by way of the real go-nvml.
func TestMemoryLimits(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		_, library, device := limiter(t)
		cgroup, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			what       string
			cgroup     string
			soft, hard uint64
			want       nvml.Return
			limit      nvml.MemoryLimits_v1 // that is read back
			found      nvml.Return
		}{
			{what: "to the byte", cgroup: cgroup, hard: 4*gib + 1, limit: nvml.MemoryLimits_v1{HardLimit: 4*gib + 1}},
			{what: "another", cgroup: cgroup, hard: 3 * gib, limit: nvml.MemoryLimits_v1{HardLimit: 3 * gib}},
			{what: "all there is", cgroup: cgroup, hard: total, limit: nvml.MemoryLimits_v1{HardLimit: total}},
			{what: "more than there is", cgroup: cgroup, hard: total + 1, want: nvml.ERROR_INVALID_ARGUMENT, limit: nvml.MemoryLimits_v1{HardLimit: total}},
			{what: "soft above hard", cgroup: cgroup, soft: 2, hard: 1, want: nvml.ERROR_INVALID_ARGUMENT, limit: nvml.MemoryLimits_v1{HardLimit: total}},
			{what: "a guarantee of more", cgroup: cgroup, soft: total + 1, hard: most, want: nvml.ERROR_INVALID_ARGUMENT, limit: nvml.MemoryLimits_v1{HardLimit: total}},
			{what: "a guarantee", cgroup: cgroup, soft: gib, hard: most, limit: nvml.MemoryLimits_v1{SoftLimit: gib, HardLimit: most}},
			{what: "cleared", cgroup: cgroup, hard: most, found: nvml.ERROR_NOT_FOUND},
			{what: "no such cgroup", cgroup: cgroup + "-gone", hard: gib, want: nvml.ERROR_OPERATING_SYSTEM, found: nvml.ERROR_OPERATING_SYSTEM},
			{what: "no directory", cgroup: file, hard: gib, want: nvml.ERROR_OPERATING_SYSTEM, found: nvml.ERROR_OPERATING_SYSTEM},
		} {
			if ret := device.SetMemoryLimits_v1(step.cgroup, step.soft, step.hard); ret != step.want {
				t.Errorf("%s: set: %v, want %v", step.what, ret, step.want)
			}
			limits, ret := device.GetMemoryLimits_v1(step.cgroup)
			if ret != step.found || ret == nvml.SUCCESS && (limits.HardLimit != step.limit.HardLimit || limits.SoftLimit != step.limit.SoftLimit || limits.CurrentUsed != 0) {
				t.Errorf("%s: read back: %v, %+v, want %v, %+v", step.what, ret, limits, step.found, step.limit)
			}
		}
		must(t, device.SetMemoryLimits_v1(cgroup, 0, gib))
		other := get[nvml.Device](t)(library.DeviceGetHandleByIndex(1))
		if limits, ret := other.GetMemoryLimits_v1(cgroup); ret != nvml.ERROR_NOT_FOUND {
			t.Errorf("of another GPU: %v, %+v", ret, limits)
		}
	})
}

// A cgroup that was removed and made again is another one, without a limit.
func TestLimitGoesWithItsCgroup(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		_, _, device := limiter(t)
		dir := t.TempDir()
		cgroup, aside := filepath.Join(dir, "cgroup"), filepath.Join(dir, "aside")
		if err := os.Mkdir(cgroup, 0o755); err != nil {
			t.Fatal(err)
		}
		must(t, device.SetMemoryLimits_v1(cgroup, 0, gib))
		// Not removed, as a file system may give the next one its inode.
		if err := errors.Join(os.Rename(cgroup, aside), os.Mkdir(cgroup, 0o755)); err != nil {
			t.Fatal(err)
		}
		if limits, ret := device.GetMemoryLimits_v1(cgroup); ret != nvml.ERROR_NOT_FOUND {
			t.Errorf("another cgroup at its path: %v, %+v", ret, limits)
		}
		if limits, ret := device.GetMemoryLimits_v1(aside); ret != nvml.SUCCESS || limits.HardLimit != gib {
			t.Errorf("the cgroup at another path: %v, %+v", ret, limits)
		}
	})
}

// What is allocated shows in NVML, and is what limits allow.
func TestAllocatedMemory(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver, _, device := limiter(t)
		cgroup := t.TempDir()
		must(t, device.SetMemoryLimits_v1(cgroup, 0, 4*gib))
		group, err := state.CgroupAt(cgroup)
		if err != nil {
			t.Fatal(err)
		}
		one := state.Process{PID: 71, Name: "one", Cgroups: []state.Cgroup{group}}
		two := state.Process{PID: 72, Name: "two", Cgroups: []state.Cgroup{group}}
		driver.UpdateGPU(t, "0", func(g *state.GPU) {
			if err := errors.Join(g.Allocate(one, 2*gib, total), g.Allocate(two, gib, total), g.Allocate(one, gib, total)); err != nil {
				t.Error(err)
			}
			var refusal *state.Refusal
			if err := g.Allocate(two, 1, total); !errors.As(err, &refusal) || refusal.Result != state.InsufficientMemory {
				t.Errorf("more than the limit: %v", err)
			}
		})
		running := get[[]nvml.ProcessInfo](t)(device.GetComputeRunningProcesses())
		if len(running) != 2 || running[0].Pid != 71 || running[0].UsedGpuMemory != 3*gib || running[1].Pid != 72 || running[1].UsedGpuMemory != gib {
			t.Errorf("processes are %+v", running)
		}
		if limits, ret := device.GetMemoryLimits_v1(cgroup); ret != nvml.SUCCESS || limits.CurrentUsed != 4*gib {
			t.Errorf("in use are %+v, %v", limits, ret)
		}
		if memory := get[nvml.Memory_v2](t)(device.GetMemoryInfo_v2()); memory.Used != 4*gib {
			t.Errorf("memory is %+v", memory)
		}
	})
}

// Only cgroups of version 2 have limits, and only root sets them, on whole GPUs.
func TestLimitRefusals(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver, library, device := limiter(t)
		dir := t.TempDir()
		if err := os.Remove(driver.AnyDirectory()); err != nil {
			t.Fatal(err)
		}
		both := func(what, cgroup string, device nvml.Device, set, read nvml.Return) {
			t.Helper()
			if ret := device.SetMemoryLimits_v1(cgroup, 0, gib); ret != set {
				t.Errorf("%s: set: %v, want %v", what, ret, set)
			}
			if _, ret := device.GetMemoryLimits_v1(cgroup); ret != read {
				t.Errorf("%s: read: %v, want %v", what, ret, read)
			}
		}
		both("no cgroup", dir, device, nvml.ERROR_OPERATING_SYSTEM, nvml.ERROR_OPERATING_SYSTEM)
		for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
				both("a cgroup", root, device, nvml.SUCCESS, nvml.SUCCESS)
			}
		}
		if err := os.WriteFile(driver.AnyDirectory(), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		// Anybody may use a driver, but not look into a test's directories.
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		asNobody(t, func() {
			both("not root", dir, device, nvml.ERROR_NO_PERMISSION, nvml.ERROR_NOT_FOUND)
		})
		driver.Update(t, func(s *state.State) error { return occupy(&s.GPUs[1]) })
		partitioned := get[nvml.Device](t)(library.DeviceGetHandleByIndex(1))
		both("in MIG mode", dir, partitioned, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NOT_SUPPORTED)
		mig := get[nvml.Device](t)(partitioned.GetMigDeviceHandleByIndex(0))
		both("a MIG device", dir, mig, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NOT_SUPPORTED)
		lost := get[nvml.Device](t)(library.DeviceGetHandleByIndex(3))
		driver.UpdateGPU(t, "3", func(g *state.GPU) { g.Lost = true })
		both("a lost GPU", dir, lost, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_GPU_IS_LOST)
		driver.Update(t, func(s *state.State) error { s.UnloadDriver(); return nil })
		both("no driver", dir, device, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_DRIVER_NOT_LOADED)
	})
}

// asNobody has this thread, and no other, run do without root's rights.
func asNobody(t *testing.T, do func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(uid uintptr) {
		const same = ^uintptr(0)
		if _, _, err := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uid, same); err != 0 {
			t.Fatalf("change the effective user: %v", err)
		}
	}
	become(65534)
	defer become(0)
	do()
}

// Drivers before R615 have no such calls, and a library is for its drivers only.
func TestGenerations(t *testing.T) {
	for _, test := range []struct{ preset, other string }{
		{"h100x8-r580", "615.43.02"},
		{"h100x8-r615", "580.95.05"},
	} {
		t.Run(test.preset, func(t *testing.T) {
			fakegputest.Isolate(t, func(t *testing.T) {
				driver := fakegputest.New(t, test.preset)
				library := load(t, driver)
				for _, symbol := range []string{"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"} {
					err := library.Extensions().LookupSymbol(symbol)
					if has := err == nil; has != (test.preset == "h100x8-r615") {
						t.Errorf("it has %s: %t", symbol, has)
					}
				}
				driver.Update(t, func(s *state.State) error {
					s.Driver.Version = test.other
					return nil
				})
				if _, ret := library.DeviceGetCount(); ret != nvml.ERROR_LIB_RM_VERSION_MISMATCH {
					t.Errorf("with driver %s: %v", test.other, ret)
				}
			})
		})
	}
}
