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
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/pkg/golden"
)

// TestInventory reads every preset through the real go-nvml.
func TestInventory(t *testing.T) {
	for _, preset := range catalog.PresetNames() {
		t.Run(preset, func(t *testing.T) {
			file := filepath.Join("testdata", "inventory-"+preset+".golden")
			fakegputest.Isolate(t, func(t *testing.T) {
				golden.Check(t, file, []byte(inventory(t, load(t, fakegputest.New(t, preset)))))
			})
		})
	}
}

// load initialises the library of a driver root until the test ends.
func load(t *testing.T, driver *fakegputest.Driver) nvml.Interface {
	t.Helper()
	library := nvml.New(nvml.WithLibraryPath(driver.NVML()))
	must(t, library.Init())
	t.Cleanup(func() { must(t, library.Shutdown()) })
	return library
}

func must(t *testing.T, result nvml.Return) {
	t.Helper()
	if result != nvml.SUCCESS {
		t.Fatalf("NVML call failed: %v", result)
	}
}

// get unwraps an answer that must be there.
func get[T any](t *testing.T) func(value T, result nvml.Return) T {
	return func(value T, result nvml.Return) T {
		t.Helper()
		must(t, result)
		return value
	}
}

// inventory is all that NVML says about a node, as text.
func inventory(t *testing.T, library nvml.Interface) string {
	var out strings.Builder
	fmt.Fprintf(&out, "driver %s, NVML %s, CUDA %d\n",
		get[string](t)(library.SystemGetDriverVersion()),
		get[string](t)(library.SystemGetNVMLVersion()),
		get[int](t)(library.SystemGetCudaDriverVersion_v2()))
	for index := range get[int](t)(library.DeviceGetCount()) {
		describe(t, &out, get[nvml.Device](t)(library.DeviceGetHandleByIndex(index)))
	}
	return out.String()
}

func describe(t *testing.T, out *strings.Builder, device nvml.Device) {
	pci := get[nvml.PciInfo](t)(device.GetPciInfo())
	memory := get[nvml.Memory_v2](t)(device.GetMemoryInfo_v2())
	old := get[nvml.Memory](t)(device.GetMemoryInfo())
	major, minor, result := device.GetCudaComputeCapability()
	must(t, result)
	fmt.Fprintf(out, "%d: %s\n", get[int](t)(device.GetIndex()), get[string](t)(device.GetName()))
	fmt.Fprintf(out, "  uuid %s serial %s minor %d\n", get[string](t)(device.GetUUID()),
		get[string](t)(device.GetSerial()), get[int](t)(device.GetMinorNumber()))
	fmt.Fprintf(out, "  pci %s (%s) %08x %08x\n", text(pci.BusId[:]), text(pci.BusIdLegacy[:]), pci.PciDeviceId, pci.PciSubSystemId)
	fmt.Fprintf(out, "  brand %d architecture %d capability %d.%d cores %d\n", get[nvml.BrandType](t)(device.GetBrand()),
		get[nvml.DeviceArchitecture](t)(device.GetArchitecture()), major, minor, get[int](t)(device.GetNumGpuCores()))
	fmt.Fprintf(out, "  memory total %d reserved %d used %d free %d; v1 total %d used %d free %d\n",
		memory.Total, memory.Reserved, memory.Used, memory.Free, old.Total, old.Used, old.Free)
	fmt.Fprintf(out, "  compute mode %d persistence %d processes %d\n", get[nvml.ComputeMode](t)(device.GetComputeMode()),
		get[nvml.EnableState](t)(device.GetPersistenceMode()), len(get[[]nvml.ProcessInfo](t)(device.GetComputeRunningProcesses())))
	current, pending, result := device.GetMigMode()
	fmt.Fprintf(out, "  mig %d/%d %v\n", current, pending, result)
	for slot := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		describeProfile(t, out, device, slot)
	}
}

func describeProfile(t *testing.T, out *strings.Builder, device nvml.Device, slot int) {
	info, result := device.GetGpuInstanceProfileInfo(slot)
	if result == nvml.ERROR_NOT_SUPPORTED {
		return
	}
	must(t, result)
	v2 := get[nvml.GpuInstanceProfileInfo_v2](t)(device.GetGpuInstanceProfileInfoV(slot).V2())
	v3 := get[nvml.GpuInstanceProfileInfo_v3](t)(device.GetGpuInstanceProfileInfoV(slot).V3())
	if v2.Name != v3.Name || v2.Id != info.Id || v3.MemorySizeMB != info.MemorySizeMB || v3.SliceCount != info.SliceCount {
		t.Errorf("profile %d: the versions disagree: %+v, %+v, %+v", slot, info, v2, v3)
	}
	fmt.Fprintf(out, "    %d: %s %+v %+v\n", slot, text(v3.Name[:]), info,
		get[[]nvml.GpuInstancePlacement](t)(device.GetGpuInstancePossiblePlacements(&info)))
}

// text is what a C character array holds.
func text[C int8 | uint8](chars []C) string {
	var out []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		out = append(out, byte(c))
	}
	return string(out)
}
