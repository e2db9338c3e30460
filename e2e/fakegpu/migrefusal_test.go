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
	"sync"
	"sync/atomic"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// TestPartitionRefusals checks the error of each thing that NVML refuses.
func TestPartitionRefusals(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		_, library, gpu := migNode(t, "mixed")
		off := get[nvml.Device](t)(library.DeviceGetHandleByIndex(1))
		never := get[nvml.Device](t)(library.DeviceGetHandleByIndex(2))
		p := partitionAt(t, gpu, nvml.GPU_INSTANCE_PROFILE_3_SLICE, 0)
		one := get[nvml.GpuInstanceProfileInfo](t)(gpu.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE))
		all := get[nvml.GpuInstanceProfileInfo](t)(gpu.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_7_SLICE))
		unknown := nvml.GpuInstanceProfileInfo{Id: 99, InstanceCount: 1}
		at := func(device nvml.Device, info nvml.GpuInstanceProfileInfo, start, size uint32) func() nvml.Return {
			return func() nvml.Return {
				_, result := device.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: start, Size: size})
				return result
			}
		}
		for name, test := range map[string]struct {
			call func() nvml.Return
			want nvml.Return
		}{
			"no MIG":             {at(never, one, 0, 1), nvml.ERROR_NOT_SUPPORTED},
			"MIG mode off":       {at(off, one, 0, 1), nvml.ERROR_NOT_SUPPORTED},
			"taken":              {at(gpu, one, 3, 1), nvml.ERROR_INSUFFICIENT_RESOURCES},
			"wrong size":         {at(gpu, one, 4, 2), nvml.ERROR_INVALID_ARGUMENT},
			"no such start":      {at(gpu, one, 7, 1), nvml.ERROR_INVALID_ARGUMENT},
			"unknown profile":    {at(gpu, unknown, 4, 1), nvml.ERROR_INVALID_ARGUMENT},
			"on a MIG device":    {at(p.device, one, 4, 1), nvml.ERROR_INVALID_ARGUMENT},
			"no room anywhere":   {second(gpu.CreateGpuInstance(&all)), nvml.ERROR_INSUFFICIENT_RESOURCES},
			"anywhere, mode off": {second(off.CreateGpuInstance(&one)), nvml.ERROR_NOT_SUPPORTED},
			"no such instance":   {second(gpu.GetGpuInstanceById(14)), nvml.ERROR_NOT_FOUND},
			"by id, mode off":    {second(off.GetGpuInstanceById(0)), nvml.ERROR_NOT_SUPPORTED},
			"list, mode off":     {second(off.GetGpuInstances(&one)), nvml.ERROR_NOT_SUPPORTED},
			"list, unknown":      {second(gpu.GetGpuInstances(&unknown)), nvml.ERROR_INVALID_ARGUMENT},
			"capacity, mode off": {second(off.GetGpuInstanceRemainingCapacity(&one)), nvml.ERROR_NOT_SUPPORTED},
			"capacity, unknown":  {second(gpu.GetGpuInstanceRemainingCapacity(&unknown)), nvml.ERROR_NOT_SUPPORTED},
			"compute profile 4g": {second(p.instance.GetComputeInstanceProfileInfo(3, 0)), nvml.ERROR_NOT_SUPPORTED},
			"compute profile 9":  {second(p.instance.GetComputeInstanceProfileInfo(9, 0)), nvml.ERROR_INVALID_ARGUMENT},
			"compute engines":    {second(p.instance.GetComputeInstanceProfileInfo(0, 1)), nvml.ERROR_INVALID_ARGUMENT},
			"compute, full":      {second(p.instance.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: 0})), nvml.ERROR_INSUFFICIENT_RESOURCES},
			"compute, unknown":   {second(p.instance.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: 9})), nvml.ERROR_NOT_SUPPORTED},
			"no such compute":    {second(p.instance.GetComputeInstanceById(1)), nvml.ERROR_NOT_FOUND},
			"instance not empty": {p.instance.Destroy, nvml.ERROR_IN_USE},
			"no such device":     {second(gpu.GetMigDeviceHandleByIndex(1)), nvml.ERROR_NOT_FOUND},
			"no such index":      {second(gpu.GetMigDeviceHandleByIndex(7)), nvml.ERROR_INVALID_ARGUMENT},
			"device, mode off":   {second(off.GetMigDeviceHandleByIndex(0)), nvml.ERROR_NOT_FOUND},
			"device, no MIG":     {second(never.GetMigDeviceHandleByIndex(0)), nvml.ERROR_NOT_SUPPORTED},
			"unknown UUID":       {second(library.DeviceGetHandleByUUID("MIG-00000000-0000-0000-0000-000000000000")), nvml.ERROR_NOT_FOUND},
			"parent of a GPU":    {second(gpu.GetDeviceHandleFromMigDeviceHandle()), nvml.ERROR_INVALID_ARGUMENT},
			"instance of a GPU":  {second(gpu.GetGpuInstanceId()), nvml.ERROR_INVALID_ARGUMENT},
			"minor of a device":  {second(p.device.GetMinorNumber()), nvml.ERROR_INVALID_ARGUMENT},
			"cores of a device":  {second(p.device.GetNumGpuCores()), nvml.ERROR_NOT_SUPPORTED},
			"attributes of GPU":  {second(gpu.GetAttributes()), nvml.ERROR_NOT_SUPPORTED},
		} {
			if got := test.call(); got != test.want {
				t.Errorf("%s: %v, want %v", name, got, test.want)
			}
		}
		if got := get[int](t)(off.GetMaxMigDeviceCount()); got != 0 {
			t.Errorf("%d MIG devices with the mode off", got)
		}
		p.destroy(t)
	})
}

// second keeps what NVML answered.
func second[T any](_ T, result nvml.Return) func() nvml.Return {
	return func() nvml.Return { return result }
}

// TestDestroyedPartition: no handle of a destroyed instance means the one that
// takes its place, which has the same ids and another UUID.
func TestDestroyedPartition(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		_, library, gpu := migNode(t, "h100x8")
		uuids := map[string]bool{}
		var old []partition
		for range 5 {
			p := partitionAt(t, gpu, nvml.GPU_INSTANCE_PROFILE_1_SLICE, 3)
			if uuids[p.uuid] {
				t.Errorf("%s is not new", p.uuid)
			}
			uuids[p.uuid] = true
			if id := get[nvml.GpuInstanceInfo](t)(p.instance.GetInfo()).Id; id != 10 {
				t.Errorf("GPU instance %d", id)
			}
			for _, gone := range old {
				for name, result := range map[string]nvml.Return{
					"device":           second(gone.device.GetUUID())(),
					"attributes":       second(gone.device.GetAttributes())(),
					"UUID":             second(library.DeviceGetHandleByUUID(gone.uuid))(),
					"GPU instance":     second(gone.instance.GetInfo())(),
					"compute instance": second(gone.compute.GetInfo())(),
					"destroy again":    gone.instance.Destroy(),
					"and its compute":  gone.compute.Destroy(),
				} {
					want := nvml.ERROR_INVALID_ARGUMENT
					if name == "UUID" {
						want = nvml.ERROR_NOT_FOUND
					}
					if result != want {
						t.Errorf("%s of a destroyed partition: %v, want %v", name, result, want)
					}
				}
			}
			p.destroy(t)
			old = append(old, p)
		}
	})
}

// TestProcessesInTheWay puts processes on a GPU and into an instance.
func TestProcessesInTheWay(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver, library, gpu := migNode(t, "h100x8")
		p := partitionAt(t, gpu, nvml.GPU_INSTANCE_PROFILE_1_SLICE, 3)
		other := partitionAt(t, gpu, nvml.GPU_INSTANCE_PROFILE_1_SLICE, 4)
		add := func(name string, process state.Process) {
			driver.Update(t, func(s *state.State) error {
				gpu, err := s.Find(name)
				if err != nil {
					return err
				}
				return gpu.AddProcess(process)
			})
		}
		add("0", state.Process{PID: 4711, Name: "python", MemoryBytes: 3 << 30, Instance: p.uuid})
		add("1", state.Process{PID: 4712, Name: "trainer", MemoryBytes: 5 << 30})
		add("1", state.Process{PID: 4713, Name: "server", MemoryBytes: 1 << 30})

		want := []nvml.ProcessInfo{{Pid: 4711, UsedGpuMemory: 3 << 30, GpuInstanceId: 10, ComputeInstanceId: 0}}
		for name, device := range map[string]nvml.Device{"MIG device": p.device, "its GPU": gpu} {
			if diff := cmp.Diff(want, get[[]nvml.ProcessInfo](t)(device.GetComputeRunningProcesses())); diff != "" {
				t.Errorf("processes of the %s (-want +got):\n%s", name, diff)
			}
		}
		if got := get[[]nvml.ProcessInfo](t)(other.device.GetComputeRunningProcesses()); len(got) != 0 {
			t.Errorf("processes of the other MIG device: %+v", got)
		}
		whole := get[nvml.Device](t)(library.DeviceGetHandleByIndex(1))
		none := uint32(0xffffffff)
		want = []nvml.ProcessInfo{
			{Pid: 4712, UsedGpuMemory: 5 << 30, GpuInstanceId: none, ComputeInstanceId: none},
			{Pid: 4713, UsedGpuMemory: 1 << 30, GpuInstanceId: none, ComputeInstanceId: none},
		}
		if diff := cmp.Diff(want, get[[]nvml.ProcessInfo](t)(whole.GetComputeRunningProcesses())); diff != "" {
			t.Errorf("processes of a whole GPU (-want +got):\n%s", diff)
		}
		memory := get[nvml.Memory_v2](t)(whole.GetMemoryInfo_v2())
		if memory.Used != 6<<30 || memory.Free+memory.Used+memory.Reserved != memory.Total {
			t.Errorf("memory %+v", memory)
		}
		if name := get[string](t)(library.SystemGetProcessName(4712)); name != "trainer" {
			t.Errorf("process 4712 is called %q", name)
		}
		if _, result := library.SystemGetProcessName(1); result != nvml.ERROR_NOT_FOUND {
			t.Errorf("the name of a process that uses no GPU = %v", result)
		}

		if got := p.compute.Destroy(); got != nvml.ERROR_IN_USE {
			t.Errorf("destroying a compute instance with a process = %v", got)
		}
		if got := p.instance.Destroy(); got != nvml.ERROR_IN_USE {
			t.Errorf("destroying a GPU instance with a process = %v", got)
		}
		driver.UpdateGPU(t, "0", func(gpu *state.GPU) { gpu.Processes = nil })
		p.destroy(t)
	})
}

// TestPartitionRace has threads compete for one place.
func TestPartitionRace(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		_, _, gpu := migNode(t, "h100x8")
		profile := get[nvml.GpuInstanceProfileInfo](t)(gpu.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_4_SLICE))
		for range 5 {
			var made, refused atomic.Int32
			var group sync.WaitGroup
			for range 6 {
				group.Go(func() {
					_, result := gpu.CreateGpuInstanceWithPlacement(&profile, &nvml.GpuInstancePlacement{Start: 0, Size: 4})
					switch result {
					case nvml.SUCCESS:
						made.Add(1)
					case nvml.ERROR_INSUFFICIENT_RESOURCES:
						refused.Add(1)
					default:
						t.Errorf("making an instance = %v", result)
					}
				})
			}
			group.Wait()
			if made.Load() != 1 || refused.Load() != 5 {
				t.Errorf("%d of 6 threads made the instance, %d were refused", made.Load(), refused.Load())
			}
			must(t, get[nvml.GpuInstance](t)(gpu.GetGpuInstanceById(1)).Destroy())
		}
	})
}
