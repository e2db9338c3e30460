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
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// asked is how to ask each query that a failure can be injected into.
var asked = map[state.Query]func(library nvml.Interface, device nvml.Device, uuid string) nvml.Return{
	state.QueryHandle: func(library nvml.Interface, _ nvml.Device, uuid string) nvml.Return {
		_, result := library.DeviceGetHandleByUUID(uuid)
		return result
	},
	state.QueryComputeCapability: func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		_, _, result := device.GetCudaComputeCapability()
		return result
	},
	state.QueryMIGMode: func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		_, _, result := device.GetMigMode()
		return result
	},
	state.QueryGPUInstanceProfile: func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		_, result := device.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
		return result
	},
	state.QueryPossiblePlacements: func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		_, result := device.GetGpuInstancePossiblePlacements(&nvml.GpuInstanceProfileInfo{Id: 19})
		return result
	},
	state.QueryRemainingCapacity: func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		_, result := device.GetGpuInstanceRemainingCapacity(&nvml.GpuInstanceProfileInfo{Id: 19})
		return result
	},
	state.QueryGPUInstances: func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		_, result := device.GetGpuInstances(&nvml.GpuInstanceProfileInfo{Id: 19, InstanceCount: 7})
		return result
	},
	state.QueryMIGDeviceHandle: func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		_, result := device.GetMigDeviceHandleByIndex(0)
		return result
	},
	state.QueryMemoryLimits: func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		_, result := device.GetMemoryLimits_v1("/")
		return result
	},
	state.QuerySetMemoryLimits: func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		return device.SetMemoryLimits_v1("/", 0, nvml.DEVICE_MEMORY_LIMIT_MAX)
	},
	state.QuerySetMIGMode: func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		_, result := device.SetMigMode(nvml.DEVICE_MIG_ENABLE)
		return result
	},
	state.QueryCreateGPUInstance: func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		_, result := device.CreateGpuInstance(&nvml.GpuInstanceProfileInfo{Id: 0})
		return result
	},
	state.QueryDestroyGPUInstance: askInstance(func(instance nvml.GpuInstance) nvml.Return { return instance.Destroy() }),
	state.QueryGPUInstanceInfo: askInstance(func(instance nvml.GpuInstance) nvml.Return {
		_, result := instance.GetInfo()
		return result
	}),
	state.QueryComputeInstanceProfile: askInstance(func(instance nvml.GpuInstance) nvml.Return {
		_, result := instance.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 0)
		return result
	}),
	state.QueryCreateComputeInstance: askInstance(func(instance nvml.GpuInstance) nvml.Return {
		_, result := instance.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: 0})
		return result
	}),
	state.QueryComputeInstances: askInstance(func(instance nvml.GpuInstance) nvml.Return {
		_, result := instance.GetComputeInstanceById(0)
		return result
	}),
	state.QueryComputeInstanceInfo: askInstance(func(instance nvml.GpuInstance) nvml.Return {
		compute, result := instance.GetComputeInstanceById(0)
		if result == nvml.SUCCESS {
			_, result = compute.GetInfo()
		}
		return result
	}),
	state.QueryDestroyComputeInstance: askInstance(func(instance nvml.GpuInstance) nvml.Return {
		compute, result := instance.GetComputeInstanceById(0)
		if result == nvml.SUCCESS {
			result = compute.Destroy()
		}
		return result
	}),
	state.QueryGPUInstanceID:     askMIGDevice(nvml.Device.GetGpuInstanceId),
	state.QueryComputeInstanceID: askMIGDevice(nvml.Device.GetComputeInstanceId),

	state.QueryName:                ask(nvml.Device.GetName),
	state.QueryBrand:               ask(nvml.Device.GetBrand),
	state.QueryUUID:                ask(nvml.Device.GetUUID),
	state.QuerySerial:              ask(nvml.Device.GetSerial),
	state.QueryIndex:               ask(nvml.Device.GetIndex),
	state.QueryMinorNumber:         ask(nvml.Device.GetMinorNumber),
	state.QueryPCIInfo:             ask(nvml.Device.GetPciInfo),
	state.QueryNUMANodeID:          ask(nvml.Device.GetNumaNodeId),
	state.QueryAddressingMode:      ask(nvml.Device.GetAddressingMode),
	state.QueryArchitecture:        ask(nvml.Device.GetArchitecture),
	state.QueryNumGPUCores:         ask(nvml.Device.GetNumGpuCores),
	state.QueryAttributes:          ask(nvml.Device.GetAttributes),
	state.QueryMemoryInfo:          ask(nvml.Device.GetMemoryInfo_v2),
	state.QueryComputeMode:         ask(nvml.Device.GetComputeMode),
	state.QueryPersistenceMode:     ask(nvml.Device.GetPersistenceMode),
	state.QueryComputeProcesses:    ask(nvml.Device.GetComputeRunningProcesses),
	state.QueryGraphicsProcesses:   ask(nvml.Device.GetGraphicsRunningProcesses),
	state.QueryMPSComputeProcesses: ask(nvml.Device.GetMPSComputeRunningProcesses),
	state.QueryMaxMIGDeviceCount:   ask(nvml.Device.GetMaxMigDeviceCount),
	state.QueryEvents:              ask(nvml.Device.GetSupportedEventTypes),
}

func ask[T any](query func(nvml.Device) (T, nvml.Return)) func(nvml.Interface, nvml.Device, string) nvml.Return {
	return func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		_, result := query(device)
		return result
	}
}

// askInstance asks about the GPU instance that the test has made.
func askInstance(query func(nvml.GpuInstance) nvml.Return) func(nvml.Interface, nvml.Device, string) nvml.Return {
	return func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		instance, result := device.GetGpuInstanceById(busyInstance)
		if result != nvml.SUCCESS {
			return result
		}
		return query(instance)
	}
}

// askMIGDevice asks about the MIG device that the test has made.
func askMIGDevice[T any](query func(nvml.Device) (T, nvml.Return)) func(nvml.Interface, nvml.Device, string) nvml.Return {
	return func(_ nvml.Interface, device nvml.Device, _ string) nvml.Return {
		mig, result := device.GetMigDeviceHandleByIndex(0)
		if result == nvml.SUCCESS {
			_, result = query(mig)
		}
		return result
	}
}
