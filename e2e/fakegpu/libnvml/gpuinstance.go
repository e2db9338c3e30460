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

//export nvmlDeviceGetGpuInstances
func nvmlDeviceGetGpuInstances(device C.nvmlDevice_t, profileID C.uint, instances *C.nvmlGpuInstance_t, count *C.uint) C.nvmlReturn_t {
	return askInstances(device, state.QueryGPUInstances, count, func(t *target, geometry *catalog.Geometry, count *C.uint) state.Result {
		if _, ok := geometry.ByID(int(profileID)); !ok {
			return state.InvalidArgument
		}
		var keys []string
		for _, instance := range t.Instances {
			if instance.Profile == int(profileID) {
				keys = append(keys, instance.Key)
			}
		}
		return putHandles(keys, (*unsafe.Pointer)(unsafe.Pointer(instances)), count)
	})
}

// putHandles writes handles into an array of the caller's, which NVML trusts to
// have room for as many instances as the profile allows.
func putHandles(names []string, out *unsafe.Pointer, count *C.uint) state.Result {
	if out == nil && len(names) > 0 {
		return state.InvalidArgument
	}
	*count = C.uint(len(names))
	for i, name := range names {
		unsafe.Slice(out, len(names))[i] = process.handle(name)
	}
	return state.Success
}

//export nvmlDeviceGetGpuInstanceById
func nvmlDeviceGetGpuInstanceById(device C.nvmlDevice_t, id C.uint, instance *C.nvmlGpuInstance_t) C.nvmlReturn_t {
	return askInstances(device, state.QueryGPUInstances, instance, func(t *target, _ *catalog.Geometry, out *C.nvmlGpuInstance_t) state.Result {
		instance, ok := t.Instance(int(id))
		if !ok {
			return state.NotFound
		}
		*out = C.nvmlGpuInstance_t(process.handle(instance.Key))
		return state.Success
	})
}

//export nvmlDeviceGetGpuInstanceRemainingCapacity
func nvmlDeviceGetGpuInstanceRemainingCapacity(device C.nvmlDevice_t, profileID C.uint, count *C.uint) C.nvmlReturn_t {
	return askInstances(device, state.QueryRemainingCapacity, count, func(t *target, geometry *catalog.Geometry, count *C.uint) state.Result {
		if _, ok := geometry.ByID(int(profileID)); !ok {
			return state.NotSupported
		}
		*count = C.uint(geometry.Remaining(t.Placements(), int(profileID)))
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
	return askMIG(device, state.QueryPossiblePlacements, count, func(_ *target, geometry *catalog.Geometry, count *C.uint) state.Result {
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

//export nvmlDeviceCreateGpuInstance
func nvmlDeviceCreateGpuInstance(device C.nvmlDevice_t, profileID C.uint, instance *C.nvmlGpuInstance_t) C.nvmlReturn_t {
	return createGPUInstance(device, profileID, instance, func(t *target) (int, error) { return t.PlaceInstance(int(profileID)) })
}

//export nvmlDeviceCreateGpuInstanceWithPlacement
func nvmlDeviceCreateGpuInstanceWithPlacement(device C.nvmlDevice_t, profileID C.uint,
	placement *C.const_nvmlGpuInstancePlacement_t, instance *C.nvmlGpuInstance_t) C.nvmlReturn_t {
	if placement == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	return createGPUInstance(device, profileID, instance, func(t *target) (int, error) {
		if t.model.MIG == nil {
			return 0, &state.Refusal{Result: state.NotSupported}
		}
		if profile, ok := t.model.MIG.ByID(int(profileID)); !ok || int(placement.size) != profile.MemorySlices {
			return 0, &state.Refusal{Result: state.InvalidArgument}
		}
		return int(placement.start), nil
	})
}

func createGPUInstance(device C.nvmlDevice_t, profileID C.uint, out *C.nvmlGpuInstance_t,
	place func(*target) (start int, err error)) C.nvmlReturn_t {
	if out == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	return change(aboutGPU(device, state.QueryCreateGPUInstance), func(t *target) error {
		start, err := place(t)
		if err != nil {
			return err
		}
		instance, err := t.CreateInstance(int(profileID), start)
		if err != nil {
			return err
		}
		*out = C.nvmlGpuInstance_t(process.handle(instance.Key))
		return nil
	})
}

//export nvmlGpuInstanceDestroy
func nvmlGpuInstanceDestroy(instance C.nvmlGpuInstance_t) C.nvmlReturn_t {
	return change(aboutGPUInstance(instance, state.QueryDestroyGPUInstance),
		func(t *target) error { return t.DestroyInstance(t.instance.ID) })
}

//export nvmlGpuInstanceGetInfo
func nvmlGpuInstanceGetInfo(instance C.nvmlGpuInstance_t, info *C.nvmlGpuInstanceInfo_t) C.nvmlReturn_t {
	return ask(aboutGPUInstance(instance, state.QueryGPUInstanceInfo), info, value(func(t *target) C.nvmlGpuInstanceInfo_t {
		return C.nvmlGpuInstanceInfo_t{
			device: process.device(t.UUID), id: C.uint(t.instance.ID), profileId: C.uint(t.instance.Profile),
			placement: C.nvmlGpuInstancePlacement_t{start: C.uint(t.instance.Start), size: C.uint(t.profile().MemorySlices)},
		}
	}))
}

// askInstances is askMIG about a GPU that is in MIG mode.
func askInstances[T any](device C.nvmlDevice_t, name state.Query, out *T,
	answer func(*target, *catalog.Geometry, *T) state.Result) C.nvmlReturn_t {
	return askMIG(device, name, out, func(t *target, geometry *catalog.Geometry, out *T) state.Result {
		if !t.MIG.Current {
			return state.NotSupported
		}
		return answer(t, geometry, out)
	})
}
