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
	"regexp"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

var migUUID = regexp.MustCompile(`^MIG-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// partition is a MIG device and all its handles.
type partition struct {
	instance nvml.GpuInstance
	compute  nvml.ComputeInstance
	device   nvml.Device
	uuid     string
}

// migNode loads a driver root whose first GPU is in MIG mode.
func migNode(t *testing.T, preset string) (*fakegputest.Driver, nvml.Interface, nvml.Device) {
	t.Helper()
	driver := fakegputest.New(t, preset)
	driver.UpdateGPU(t, "0", func(gpu *state.GPU) { gpu.MIG = state.MIGMode{Current: true, Pending: true} })
	library := load(t, driver)
	return driver, library, get[nvml.Device](t)(library.DeviceGetHandleByIndex(0))
}

// partitionAt makes an instance with a compute instance of its full size.
func partitionAt(t *testing.T, gpu nvml.Device, slot, start int) partition {
	t.Helper()
	info := get[nvml.GpuInstanceProfileInfo](t)(gpu.GetGpuInstanceProfileInfo(slot))
	size := get[[]nvml.GpuInstancePlacement](t)(gpu.GetGpuInstancePossiblePlacements(&info))[0].Size
	instance := get[nvml.GpuInstance](t)(gpu.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: uint32(start), Size: size}))
	return fullyUsed(t, gpu, instance)
}

// fullyUsed makes the compute instance and looks the MIG device up.
func fullyUsed(t *testing.T, gpu nvml.Device, instance nvml.GpuInstance) partition {
	t.Helper()
	full := nvml.ComputeInstanceProfileInfo{}
	for slot := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		if info, result := instance.GetComputeInstanceProfileInfo(slot, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED); result == nvml.SUCCESS {
			full = info
		}
	}
	p := partition{instance: instance, compute: get[nvml.ComputeInstance](t)(instance.CreateComputeInstance(&full))}
	id := get[nvml.GpuInstanceInfo](t)(instance.GetInfo()).Id
	for index := range get[int](t)(gpu.GetMaxMigDeviceCount()) {
		device, result := gpu.GetMigDeviceHandleByIndex(index)
		if result == nvml.SUCCESS && get[int](t)(device.GetGpuInstanceId()) == int(id) {
			p.device, p.uuid = device, get[string](t)(device.GetUUID())
			return p
		}
	}
	t.Fatalf("GPU instance %d has no MIG device", id)
	return p
}

func (p partition) destroy(t *testing.T) {
	t.Helper()
	must(t, p.compute.Destroy())
	must(t, p.instance.Destroy())
}

// TestPartition asks everything about one MIG device.
func TestPartition(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		_, library, gpu := migNode(t, "h100x8")
		p := partitionAt(t, gpu, nvml.GPU_INSTANCE_PROFILE_3_SLICE, 4)
		if !migUUID.MatchString(p.uuid) {
			t.Errorf("%q is no UUID of a MIG device", p.uuid)
		}
		if name := get[string](t)(p.device.GetName()); name != "NVIDIA H100 80GB HBM3 MIG 3g.40gb" {
			t.Errorf("name %q", name)
		}
		want := nvml.DeviceAttributes{
			MultiprocessorCount: 60, SharedCopyEngineCount: 3, SharedDecoderCount: 3, SharedJpegCount: 3,
			GpuInstanceSliceCount: 3, ComputeInstanceSliceCount: 3, MemorySizeMB: 40448,
		}
		if diff := cmp.Diff(want, get[nvml.DeviceAttributes](t)(p.device.GetAttributes())); diff != "" {
			t.Errorf("attributes (-want +got):\n%s", diff)
		}
		memory := get[nvml.Memory_v2](t)(p.device.GetMemoryInfo_v2())
		if memory.Total != 40448<<20 || memory.Free != memory.Total || get[nvml.Memory](t)(p.device.GetMemoryInfo()).Total != memory.Total {
			t.Errorf("memory %+v", memory)
		}
		if !get[bool](t)(p.device.IsMigDeviceHandle()) || get[bool](t)(gpu.IsMigDeviceHandle()) {
			t.Error("IsMigDeviceHandle takes one for the other")
		}
		parent := get[nvml.Device](t)(p.device.GetDeviceHandleFromMigDeviceHandle())
		if got, want := get[string](t)(parent.GetUUID()), get[string](t)(gpu.GetUUID()); got != want {
			t.Errorf("the parent is %s, want %s", got, want)
		}
		same := get[nvml.Device](t)(library.DeviceGetHandleByUUID(p.uuid))
		if got := get[string](t)(same.GetUUID()); got != p.uuid {
			t.Errorf("the handle of %s is one of %s", p.uuid, got)
		}
		if index, compute := get[int](t)(p.device.GetIndex()), get[int](t)(p.device.GetComputeInstanceId()); index != 0 || compute != 0 {
			t.Errorf("index %d, compute instance %d", index, compute)
		}
		instance := get[nvml.GpuInstanceInfo](t)(p.instance.GetInfo())
		if instance.Id != 2 || instance.ProfileId != 9 || instance.Placement != (nvml.GpuInstancePlacement{Start: 4, Size: 4}) {
			t.Errorf("GPU instance %+v", instance)
		}
		compute := get[nvml.ComputeInstanceInfo](t)(p.compute.GetInfo())
		if compute.Id != 0 || compute.ProfileId != 2 || compute.Placement != (nvml.ComputeInstancePlacement{Start: 0, Size: 3}) ||
			get[nvml.GpuInstanceInfo](t)(compute.GpuInstance.GetInfo()).Id != 2 {
			t.Errorf("compute instance %+v", compute)
		}
		// The GPU itself answers as before, but for its cores.
		if get[string](t)(gpu.GetName()) != "NVIDIA H100 80GB HBM3" || get[int](t)(library.DeviceGetCount()) != 8 {
			t.Error("the partition changed the GPU")
		}
	})
}

// TestPartitionLists finds instances in every way that NVML has.
func TestPartitionLists(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		_, _, gpu := migNode(t, "h100x8")
		large := partitionAt(t, gpu, nvml.GPU_INSTANCE_PROFILE_3_SLICE, 0)
		first := partitionAt(t, gpu, nvml.GPU_INSTANCE_PROFILE_1_SLICE, 6)
		second := partitionAt(t, gpu, nvml.GPU_INSTANCE_PROFILE_1_SLICE, 4)
		var uuids []string
		for index := range 3 {
			uuids = append(uuids, get[string](t)(get[nvml.Device](t)(gpu.GetMigDeviceHandleByIndex(index)).GetUUID()))
		}
		if diff := cmp.Diff([]string{large.uuid, second.uuid, first.uuid}, uuids); diff != "" {
			t.Errorf("MIG devices (-want +got):\n%s", diff)
		}
		profile := get[nvml.GpuInstanceProfileInfo](t)(gpu.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE))
		var starts []uint32
		for _, instance := range get[[]nvml.GpuInstance](t)(gpu.GetGpuInstances(&profile)) {
			starts = append(starts, get[nvml.GpuInstanceInfo](t)(instance.GetInfo()).Placement.Start)
		}
		if diff := cmp.Diff([]uint32{4, 6}, starts); diff != "" {
			t.Errorf("GPU instances (-want +got):\n%s", diff)
		}
		if got := get[int](t)(gpu.GetGpuInstanceRemainingCapacity(&profile)); got != 1 {
			t.Errorf("room for %d more", got)
		}
		instance := get[nvml.GpuInstance](t)(gpu.GetGpuInstanceById(1))
		compute := get[nvml.ComputeInstance](t)(instance.GetComputeInstanceById(0))
		if got := get[nvml.ComputeInstanceInfo](t)(compute.GetInfo()); got.ProfileId != 2 {
			t.Errorf("compute instance %+v", got)
		}
		full := get[nvml.ComputeInstanceProfileInfo](t)(instance.GetComputeInstanceProfileInfo(2, 0))
		v2 := get[nvml.ComputeInstanceProfileInfo_v2](t)(instance.GetComputeInstanceProfileInfoV(2, 0).V2())
		v3 := get[nvml.ComputeInstanceProfileInfo_v3](t)(instance.GetComputeInstanceProfileInfoV(2, 0).V3())
		if text(v2.Name[:]) != "MIG 3g.40gb" || v3.Name != v2.Name || v3.MultiprocessorCount != full.MultiprocessorCount || v2.Id != full.Id {
			t.Errorf("the versions disagree: %+v, %+v, %+v", full, v2, v3)
		}
		if got := get[[]nvml.ComputeInstance](t)(instance.GetComputeInstances(&full)); len(got) != 1 {
			t.Errorf("%d compute instances", len(got))
		}
		// The others move up when one goes.
		large.destroy(t)
		if got := get[int](t)(second.device.GetIndex()); got != 0 {
			t.Errorf("index %d after the first device went", got)
		}
	})
}

// TestSharedInstance has two compute instances in one GPU instance.
func TestSharedInstance(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver, _, gpu := migNode(t, "a100x8")
		profile := get[nvml.GpuInstanceProfileInfo](t)(gpu.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_3_SLICE))
		instance := get[nvml.GpuInstance](t)(gpu.CreateGpuInstance(&profile))
		for _, slot := range []int{nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE} {
			info := get[nvml.ComputeInstanceProfileInfo](t)(instance.GetComputeInstanceProfileInfo(slot, 0))
			get[nvml.ComputeInstance](t)(instance.CreateComputeInstance(&info))
		}
		var names []string
		for index := range 2 {
			device := get[nvml.Device](t)(gpu.GetMigDeviceHandleByIndex(index))
			attributes := get[nvml.DeviceAttributes](t)(device.GetAttributes())
			names = append(names, fmt.Sprintf("%s %d of %d slices, %d SMs", get[string](t)(device.GetName()),
				attributes.ComputeInstanceSliceCount, attributes.GpuInstanceSliceCount, attributes.MultiprocessorCount))
			uuid := get[string](t)(device.GetUUID())
			driver.UpdateGPU(t, "0", func(g *state.GPU) {
				if err := g.AddProcess(state.Process{PID: uint32(index) + 1, Name: "load", MemoryBytes: 1 << 30, Instance: uuid}); err != nil {
					t.Fatal(err)
				}
			})
		}
		want := []string{
			"NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb 1 of 3 slices, 14 SMs",
			"NVIDIA A100-SXM4-80GB MIG 2c.3g.40gb 2 of 3 slices, 28 SMs",
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("devices (-want +got):\n%s", diff)
		}
		for index := range 2 {
			device := get[nvml.Device](t)(gpu.GetMigDeviceHandleByIndex(index))
			if used := get[nvml.Memory_v2](t)(device.GetMemoryInfo_v2()).Used; used != 2<<30 {
				t.Errorf("device %d: %d bytes used of the memory that both share", index, used)
			}
		}
	})
}
