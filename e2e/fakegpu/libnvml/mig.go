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

//export nvmlDeviceGetMigMode
func nvmlDeviceGetMigMode(device C.nvmlDevice_t, current, pending *C.uint) C.nvmlReturn_t {
	return askMIG(device, state.QueryMIGMode, current, func(g *gpu, _ *catalog.Geometry, current *C.uint) state.Result {
		if pending == nil {
			return state.InvalidArgument
		}
		*current, *pending = enabled(g.MIG.Current), enabled(g.MIG.Pending)
		return state.Success
	})
}

func enabled(on bool) C.uint {
	if on {
		return C.NVML_DEVICE_MIG_ENABLE
	}
	return C.NVML_DEVICE_MIG_DISABLE
}

//export nvmlDeviceGetMaxMigDeviceCount
func nvmlDeviceGetMaxMigDeviceCount(device C.nvmlDevice_t, count *C.uint) C.nvmlReturn_t {
	return ask(device, state.QueryMaxMIGDeviceCount, count, func(g *gpu, count *C.uint) state.Result {
		*count = 0
		if g.MIG.Current {
			*count = C.uint(g.model.MIG.ComputeSlices)
		}
		return state.Success
	})
}

//export nvmlDeviceIsMigDeviceHandle
func nvmlDeviceIsMigDeviceHandle(device C.nvmlDevice_t, isMIG *C.uint) C.nvmlReturn_t {
	if _, result := process.current(); result != state.Success {
		return C.nvmlReturn_t(result)
	}
	if _, known := process.uuid(device); !known || isMIG == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	*isMIG = 0
	return C.NVML_SUCCESS
}

//export nvmlDeviceGetMigDeviceHandleByIndex
func nvmlDeviceGetMigDeviceHandleByIndex(device C.nvmlDevice_t, _ C.uint, mig *C.nvmlDevice_t) C.nvmlReturn_t {
	return askMIG(device, state.QueryMIGDeviceHandle, mig,
		func(*gpu, *catalog.Geometry, *C.nvmlDevice_t) state.Result { return state.NotFound })
}

//export nvmlDeviceGetDeviceHandleFromMigDeviceHandle
func nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig C.nvmlDevice_t, device *C.nvmlDevice_t) C.nvmlReturn_t {
	return ask(mig, state.QueryMIGDeviceHandle, device,
		func(*gpu, *C.nvmlDevice_t) state.Result { return state.InvalidArgument })
}

//export nvmlDeviceGetGpuInstances
func nvmlDeviceGetGpuInstances(device C.nvmlDevice_t, profileID C.uint, _ *C.nvmlGpuInstance_t, count *C.uint) C.nvmlReturn_t {
	return askMIG(device, state.QueryGPUInstances, count, func(g *gpu, geometry *catalog.Geometry, count *C.uint) state.Result {
		if !g.MIG.Current {
			return state.NotSupported
		}
		if _, ok := geometry.ByID(int(profileID)); !ok {
			return state.InvalidArgument
		}
		*count = 0
		return state.Success
	})
}

//export nvmlDeviceGetGpuInstanceById
func nvmlDeviceGetGpuInstanceById(device C.nvmlDevice_t, _ C.uint, instance *C.nvmlGpuInstance_t) C.nvmlReturn_t {
	return askMIG(device, state.QueryGPUInstances, instance, func(g *gpu, _ *catalog.Geometry, _ *C.nvmlGpuInstance_t) state.Result {
		if !g.MIG.Current {
			return state.NotSupported
		}
		return state.NotFound
	})
}

//export nvmlDeviceGetGpuInstanceRemainingCapacity
func nvmlDeviceGetGpuInstanceRemainingCapacity(device C.nvmlDevice_t, profileID C.uint, count *C.uint) C.nvmlReturn_t {
	return askMIG(device, state.QueryRemainingCapacity, count, func(g *gpu, geometry *catalog.Geometry, count *C.uint) state.Result {
		if !g.MIG.Current {
			return state.NotSupported
		}
		profile, ok := geometry.ByID(int(profileID))
		if !ok {
			return state.NotSupported
		}
		*count = C.uint(profile.Instances)
		return state.Success
	})
}

//export nvmlDeviceGetGpuInstancePossiblePlacements
func nvmlDeviceGetGpuInstancePossiblePlacements(device C.nvmlDevice_t, profileID C.uint,
	placements *C.nvmlGpuInstancePlacement_t, count *C.uint) C.nvmlReturn_t {
	return possiblePlacements(device, profileID, placements, count)
}

//export nvmlDeviceGetGpuInstancePossiblePlacements_v2
func nvmlDeviceGetGpuInstancePossiblePlacements_v2(device C.nvmlDevice_t, profileID C.uint,
	placements *C.nvmlGpuInstancePlacement_t, count *C.uint) C.nvmlReturn_t {
	return possiblePlacements(device, profileID, placements, count)
}

func possiblePlacements(device C.nvmlDevice_t, profileID C.uint,
	placements *C.nvmlGpuInstancePlacement_t, count *C.uint) C.nvmlReturn_t {
	return askMIG(device, state.QueryPossiblePlacements, count, func(_ *gpu, geometry *catalog.Geometry, count *C.uint) state.Result {
		profile, ok := geometry.ByID(int(profileID))
		if !ok {
			return state.NotSupported
		}
		*count = C.uint(len(profile.Starts))
		if placements == nil {
			return state.Success
		}
		// The caller has asked for the count first; NVML itself trusts that.
		out := unsafe.Slice(placements, len(profile.Starts))
		for i, start := range profile.Starts {
			out[i] = C.nvmlGpuInstancePlacement_t{start: C.uint(start), size: C.uint(profile.MemorySlices)}
		}
		return state.Success
	})
}
