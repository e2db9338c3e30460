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

//go:build libnvml

package main

/*
#include "shim.h"
*/
import "C"

import (
	"unsafe"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

//export nvmlDeviceGetMemoryInfo
func nvmlDeviceGetMemoryInfo(device C.nvmlDevice_t, memory *C.nvmlMemory_t) C.nvmlReturn_t {
	return ask(aboutDevice(device, state.QueryMemoryInfo), memory, func(t *target, memory *C.nvmlMemory_t) state.Result {
		// The first version counts what the driver keeps as used.
		total, reserved, used := memoryOf(t)
		memory.total, memory.used = C.ulonglong(total), C.ulonglong(reserved+used)
		memory.free = memory.total - memory.used
		return state.Success
	})
}

//export nvmlDeviceGetMemoryInfo_v2
func nvmlDeviceGetMemoryInfo_v2(device C.nvmlDevice_t, memory *C.nvmlMemory_v2_t) C.nvmlReturn_t {
	return ask(aboutDevice(device, state.QueryMemoryInfo), memory, func(t *target, memory *C.nvmlMemory_v2_t) state.Result {
		if memory.version != C.MEMORY_V2 {
			return state.ArgumentVersionMismatch
		}
		total, reserved, used := memoryOf(t)
		memory.total, memory.reserved, memory.used = C.ulonglong(total), C.ulonglong(reserved), C.ulonglong(used)
		memory.free = memory.total - memory.reserved - memory.used
		return state.Success
	})
}

// memoryOf is the memory of a GPU or a GPU instance, in bytes. What the driver
// keeps of an instance is not part of its total.
func memoryOf(t *target) (total, reserved, used uint64) {
	total, reserved = t.model.MemoryBytes, t.model.ReservedBytes
	if isMIGDevice(t) {
		total, reserved = t.profile().MemoryMiB*catalog.MiB, 0
	}
	for _, p := range t.Processes {
		if isGPU(t) || inInstance(t.instance, p.Instance) {
			used += p.MemoryBytes
		}
	}
	return total, reserved, min(used, total-reserved)
}

// inInstance: the compute instances of a GPU instance share its memory.
func inInstance(instance *state.GPUInstance, uuid string) bool {
	for _, compute := range instance.Compute {
		if compute.UUID == uuid {
			return true
		}
	}
	return false
}

//export nvmlDeviceGetComputeMode
func nvmlDeviceGetComputeMode(device C.nvmlDevice_t, mode *C.nvmlComputeMode_t) C.nvmlReturn_t {
	return ask(aboutDevice(device, state.QueryComputeMode), mode,
		value(func(t *target) C.nvmlComputeMode_t { return C.nvmlComputeMode_t(t.ComputeMode) }))
}

//export nvmlDeviceGetPersistenceMode
func nvmlDeviceGetPersistenceMode(device C.nvmlDevice_t, mode *C.nvmlEnableState_t) C.nvmlReturn_t {
	return ask(aboutGPU(device, state.QueryPersistenceMode), mode,
		value(func(*target) C.nvmlEnableState_t { return C.NVML_FEATURE_ENABLED }))
}

//export nvmlDeviceGetComputeRunningProcesses_v3
func nvmlDeviceGetComputeRunningProcesses_v3(device C.nvmlDevice_t, count *C.uint, infos *C.nvmlProcessInfo_t) C.nvmlReturn_t {
	return ask(aboutDevice(device, state.QueryComputeProcesses), count, func(t *target, count *C.uint) state.Result {
		running := processesOf(t)
		room := int(*count)
		*count = C.uint(len(running))
		if room < len(running) {
			return state.InsufficientSize
		}
		if infos == nil && len(running) > 0 {
			return state.InvalidArgument
		}
		for i, info := range running {
			unsafe.Slice(infos, len(running))[i] = info
		}
		return state.Success
	})
}

// processesOf are the processes on a GPU with those in its instances, or those
// in one MIG device.
func processesOf(t *target) []C.nvmlProcessInfo_t {
	var all []C.nvmlProcessInfo_t
	for _, p := range t.Processes {
		if isMIGDevice(t) && p.Instance != t.compute.UUID {
			continue
		}
		info := C.nvmlProcessInfo_t{
			pid: C.uint(p.PID), usedGpuMemory: C.ulonglong(p.MemoryBytes),
			gpuInstanceId: noInstance, computeInstanceId: noInstance,
		}
		for _, d := range t.MIGDevices() {
			if d.Compute.UUID == p.Instance {
				info.gpuInstanceId, info.computeInstanceId = C.uint(d.Instance.ID), C.uint(d.Compute.ID)
			}
		}
		all = append(all, info)
	}
	return all
}

//export nvmlDeviceGetGraphicsRunningProcesses_v3
func nvmlDeviceGetGraphicsRunningProcesses_v3(device C.nvmlDevice_t, count *C.uint, _ *C.nvmlProcessInfo_t) C.nvmlReturn_t {
	return ask(aboutDevice(device, state.QueryGraphicsProcesses), count, noProcesses)
}

//export nvmlDeviceGetMPSComputeRunningProcesses_v3
func nvmlDeviceGetMPSComputeRunningProcesses_v3(device C.nvmlDevice_t, count *C.uint, _ *C.nvmlProcessInfo_t) C.nvmlReturn_t {
	return ask(aboutDevice(device, state.QueryMPSComputeProcesses), count, noProcesses)
}

// noProcesses: all of the simulated processes compute, each for itself.
func noProcesses(_ *target, count *C.uint) state.Result {
	*count = 0
	return state.Success
}

//export nvmlSystemGetProcessName
func nvmlSystemGetProcessName(pid C.uint, name *C.char, length C.uint) C.nvmlReturn_t {
	node, result := process.current()
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	if name == nil || length == 0 {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	text, ok := node.ProcessName(uint32(pid))
	if !ok {
		return C.NVML_ERROR_NOT_FOUND
	}
	fill(unsafe.Slice(name, int(length)), text)
	return C.NVML_SUCCESS
}
