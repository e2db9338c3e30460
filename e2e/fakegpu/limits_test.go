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

package fakegpu_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// Limits as NVML's header describes them, by way of the real go-nvml.
func TestMemoryLimits(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("limits are for root to set")
	}
	fakegputest.Isolate(t, func(t *testing.T) {
		d := fakegputest.New(t, "h100x8-r615")
		lib := nvml.New(nvml.WithLibraryPath(d.NVML()))
		if ret := lib.Init(); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		defer func() { _ = lib.Shutdown() }()
		device, ret := lib.DeviceGetHandleByIndex(0)
		if ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		const gi, most = uint64(1 << 30), uint64(nvml.DEVICE_MEMORY_LIMIT_MAX)
		cgroup, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		total := uint64(81559 << 20)
		for _, step := range []struct {
			what       string
			cgroup     string
			soft, hard uint64
			want       nvml.Return
			limit      uint64 // that is read back
			found      nvml.Return
		}{
			{what: "to the byte", cgroup: cgroup, hard: 4*gi + 1, limit: 4*gi + 1},
			{what: "another", cgroup: cgroup, hard: 3 * gi, limit: 3 * gi},
			{what: "all there is", cgroup: cgroup, hard: total, limit: total},
			{what: "more than there is", cgroup: cgroup, hard: total + 1, want: nvml.ERROR_INVALID_ARGUMENT, limit: total},
			{what: "soft above hard", cgroup: cgroup, soft: 2, hard: 1, want: nvml.ERROR_INVALID_ARGUMENT, limit: total},
			{what: "a guarantee", cgroup: cgroup, soft: gi, hard: most, limit: most},
			{what: "cleared", cgroup: cgroup, hard: most, found: nvml.ERROR_NOT_FOUND},
			{what: "no such cgroup", cgroup: cgroup + "-gone", hard: gi, want: nvml.ERROR_OPERATING_SYSTEM, found: nvml.ERROR_OPERATING_SYSTEM},
			{what: "no directory", cgroup: file, hard: gi, want: nvml.ERROR_OPERATING_SYSTEM, found: nvml.ERROR_OPERATING_SYSTEM},
		} {
			if ret := device.SetMemoryLimits_v1(step.cgroup, step.soft, step.hard); ret != step.want {
				t.Errorf("%s: set: %v, want %v", step.what, ret, step.want)
			}
			limits, ret := device.GetMemoryLimits_v1(step.cgroup)
			if ret != step.found || ret == nvml.SUCCESS && (limits.HardLimit != step.limit || limits.CurrentUsed != 0) {
				t.Errorf("%s: read back: %v, %+v, want %d", step.what, ret, limits, step.limit)
			}
		}
		if ret := device.SetMemoryLimits_v1(cgroup, 0, gi); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		group, err := state.CgroupAt(cgroup)
		if err != nil {
			t.Fatal(err)
		}
		d.UpdateGPU(t, "0", func(g *state.GPU) {
			g.Processes = append(g.Processes, state.Process{PID: 7, Name: "p", MemoryBytes: 5, Cgroups: []state.Cgroup{group}})
		})
		if limits, ret := device.GetMemoryLimits_v1(cgroup); ret != nvml.SUCCESS || limits.CurrentUsed != 5 {
			t.Errorf("in use are %+v, %v", limits, ret)
		}
		d.UpdateGPU(t, "0", func(g *state.GPU) { g.Processes, g.MIG.Current = nil, true })
		if ret := device.SetMemoryLimits_v1(cgroup, 0, gi); ret != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("in MIG mode: %v", ret)
		}
	})
}

// Drivers before R615 have no such calls, and a library is for its drivers only.
func TestGenerations(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		d := fakegputest.New(t, "h100x8-r580")
		lib := nvml.New(nvml.WithLibraryPath(d.NVML()))
		if ret := lib.Init(); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		for _, symbol := range []string{"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"} {
			if err := lib.Extensions().LookupSymbol(symbol); err == nil {
				t.Errorf("it has %s", symbol)
			}
		}
		d.Update(t, func(s *state.State) error {
			s.Driver.Version = "615.43.02"
			return nil
		})
		if _, ret := lib.DeviceGetCount(); ret != nvml.ERROR_LIB_RM_VERSION_MISMATCH {
			t.Errorf("with a newer driver: %v", ret)
		}
	})
}
