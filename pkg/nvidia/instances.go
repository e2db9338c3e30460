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

package nvidia

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/pkg/gpu"
)

// instances are those that exist on a GPU in MIG mode: each compute instance,
// and each GPU instance that has none.
func instances(handle nvml.Device, profiles []gpu.Profile) ([]gpu.Instance, nvml.Return) {
	var all []gpu.Instance
	devices, ret := migDevices(handle)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	for _, p := range profiles {
		gpuInstances, ret := handle.GetGpuInstances(&nvml.GpuInstanceProfileInfo{Id: uint32(p.ID), InstanceCount: uint32(p.Count)})
		if ret != nvml.SUCCESS {
			return nil, ret
		}
		for _, gi := range gpuInstances {
			info, ret := gi.GetInfo()
			if ret != nvml.SUCCESS {
				return nil, ret
			}
			place := gpu.Partition{Profile: p.Name, Start: int(info.Placement.Start), Size: int(info.Placement.Size)}
			empty := true
			for _, d := range devices {
				if d.GPUInstance == int(info.Id) {
					all, empty = append(all, d.in(place, p)), false
				}
			}
			if empty {
				all = append(all, gpu.Instance{Partition: place, GPUInstance: int(info.Id), ComputeInstance: -1})
			}
		}
	}
	slices.SortFunc(all, func(a, b gpu.Instance) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.GPUInstance, b.GPUInstance), cmp.Compare(a.ComputeInstance, b.ComputeInstance))
	})
	return all, nvml.SUCCESS
}

// migDevice is a compute instance and what it has.
type migDevice struct {
	UUID            string
	GPUInstance     int
	ComputeInstance int
	Attributes      *nvml.DeviceAttributes // nil where NVML does not tell
}

// in is the device as an instance at a place. One that has only some of the
// compute of its GPU instance is named as nvidia-smi does: "1c.3g.40gb".
func (d migDevice) in(place gpu.Partition, p gpu.Profile) gpu.Instance {
	i := gpu.Instance{
		UUID: d.UUID, Partition: place, GPUInstance: d.GPUInstance, ComputeInstance: d.ComputeInstance,
		Memory: p.Memory, Multiprocessors: p.Multiprocessors, Engines: p.Engines,
	}
	a := d.Attributes
	if a == nil {
		return i
	}
	if a.ComputeInstanceSliceCount < a.GpuInstanceSliceCount {
		i.Profile = fmt.Sprintf("%dc.%s", a.ComputeInstanceSliceCount, place.Profile)
	}
	i.Memory, i.Multiprocessors = int64(a.MemorySizeMB)*mebibyte, int(a.MultiprocessorCount)
	i.Engines = gpu.Engines{
		Copy: int(a.SharedCopyEngineCount), Decoders: int(a.SharedDecoderCount), Encoders: int(a.SharedEncoderCount),
		JPEG: int(a.SharedJpegCount), OFA: int(a.SharedOfaCount),
	}
	return i
}

func migDevices(handle nvml.Device) ([]migDevice, nvml.Return) {
	count, ret := handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	var devices []migDevice
	for index := range count {
		device, ret := handle.GetMigDeviceHandleByIndex(index)
		if ret == nvml.ERROR_NOT_FOUND {
			continue
		}
		if ret != nvml.SUCCESS {
			return nil, ret
		}
		d, ret := readMIGDevice(device)
		if ret == nvml.ERROR_NOT_FOUND {
			continue // destroyed in the meantime
		}
		if ret != nvml.SUCCESS {
			return nil, ret
		}
		devices = append(devices, d)
	}
	return devices, nvml.SUCCESS
}

func readMIGDevice(device nvml.Device) (d migDevice, ret nvml.Return) {
	if d.UUID, ret = device.GetUUID(); ret != nvml.SUCCESS {
		return d, ret
	}
	if d.GPUInstance, ret = device.GetGpuInstanceId(); ret != nvml.SUCCESS {
		return d, ret
	}
	if d.ComputeInstance, ret = device.GetComputeInstanceId(); ret != nvml.SUCCESS {
		return d, ret
	}
	attributes, ret := device.GetAttributes()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return d, nvml.SUCCESS
	}
	d.Attributes = &attributes
	return d, ret
}
