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

import "github.com/memslice/memslice/e2e/fakegpu/state"

//export nvmlDeviceGetMemoryInfo
func nvmlDeviceGetMemoryInfo(device C.nvmlDevice_t, memory *C.nvmlMemory_t) C.nvmlReturn_t {
	return ask(device, state.QueryMemoryInfo, memory, func(g *gpu, memory *C.nvmlMemory_t) state.Result {
		// The first version counts what the driver keeps as used.
		memory.total = C.ulonglong(g.model.MemoryBytes)
		memory.used = C.ulonglong(g.model.ReservedBytes)
		memory.free = memory.total - memory.used
		return state.Success
	})
}

//export nvmlDeviceGetMemoryInfo_v2
func nvmlDeviceGetMemoryInfo_v2(device C.nvmlDevice_t, memory *C.nvmlMemory_v2_t) C.nvmlReturn_t {
	return ask(device, state.QueryMemoryInfo, memory, func(g *gpu, memory *C.nvmlMemory_v2_t) state.Result {
		if memory.version != C.MEMORY_V2 {
			return state.ArgumentVersionMismatch
		}
		memory.total = C.ulonglong(g.model.MemoryBytes)
		memory.reserved = C.ulonglong(g.model.ReservedBytes)
		memory.used = 0
		memory.free = memory.total - memory.reserved
		return state.Success
	})
}

//export nvmlDeviceGetComputeMode
func nvmlDeviceGetComputeMode(device C.nvmlDevice_t, mode *C.nvmlComputeMode_t) C.nvmlReturn_t {
	return ask(device, state.QueryComputeMode, mode,
		value(func(g *gpu) C.nvmlComputeMode_t { return C.nvmlComputeMode_t(g.ComputeMode) }))
}

//export nvmlDeviceGetPersistenceMode
func nvmlDeviceGetPersistenceMode(device C.nvmlDevice_t, mode *C.nvmlEnableState_t) C.nvmlReturn_t {
	return ask(device, state.QueryPersistenceMode, mode,
		value(func(*gpu) C.nvmlEnableState_t { return C.NVML_FEATURE_ENABLED }))
}

//export nvmlDeviceGetComputeRunningProcesses_v3
func nvmlDeviceGetComputeRunningProcesses_v3(device C.nvmlDevice_t, count *C.uint, _ *C.nvmlProcessInfo_t) C.nvmlReturn_t {
	return ask(device, state.QueryComputeProcesses, count, noProcesses)
}

//export nvmlDeviceGetGraphicsRunningProcesses_v3
func nvmlDeviceGetGraphicsRunningProcesses_v3(device C.nvmlDevice_t, count *C.uint, _ *C.nvmlProcessInfo_t) C.nvmlReturn_t {
	return ask(device, state.QueryGraphicsProcesses, count, noProcesses)
}

//export nvmlDeviceGetMPSComputeRunningProcesses_v3
func nvmlDeviceGetMPSComputeRunningProcesses_v3(device C.nvmlDevice_t, count *C.uint, _ *C.nvmlProcessInfo_t) C.nvmlReturn_t {
	return ask(device, state.QueryMPSComputeProcesses, count, noProcesses)
}

// noProcesses: nothing can run on these GPUs.
func noProcesses(_ *gpu, count *C.uint) state.Result {
	*count = 0
	return state.Success
}
