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

//export nvmlGpuInstanceGetComputeInstanceProfileInfo
func nvmlGpuInstanceGetComputeInstanceProfileInfo(instance C.nvmlGpuInstance_t, slot, engines C.uint,
	info *C.nvmlComputeInstanceProfileInfo_t) C.nvmlReturn_t {
	return askComputeProfile(instance, slot, engines, info,
		func(p *catalog.Profile, c catalog.ComputeProfile, info *C.nvmlComputeInstanceProfileInfo_t) state.Result {
			*info = C.nvmlComputeInstanceProfileInfo_t{
				id: C.uint(c.ID), sliceCount: C.uint(c.Slices), instanceCount: C.uint(c.Instances),
				multiprocessorCount: C.uint(c.Multiprocessors), sharedCopyEngineCount: C.uint(p.Engines.Copy),
				sharedDecoderCount: C.uint(p.Engines.Decoders), sharedEncoderCount: C.uint(p.Engines.Encoders),
				sharedJpegCount: C.uint(p.Engines.JPEG), sharedOfaCount: C.uint(p.Engines.OFA),
			}
			return state.Success
		})
}

// The versioned function takes version 2 or 3 of the struct in place of the
// version 2 that its prototype names. Version 3 only adds to its end.
//
//export nvmlGpuInstanceGetComputeInstanceProfileInfoV
func nvmlGpuInstanceGetComputeInstanceProfileInfoV(instance C.nvmlGpuInstance_t, slot, engines C.uint,
	info *C.nvmlComputeInstanceProfileInfo_v2_t) C.nvmlReturn_t {
	return askComputeProfile(instance, slot, engines, info,
		func(p *catalog.Profile, c catalog.ComputeProfile, info *C.nvmlComputeInstanceProfileInfo_v2_t) state.Result {
			switch info.version {
			case C.COMPUTE_INSTANCE_PROFILE_INFO_V2:
			case C.COMPUTE_INSTANCE_PROFILE_INFO_V3:
				(*C.nvmlComputeInstanceProfileInfo_v3_t)(unsafe.Pointer(info)).capabilities = 0
			default:
				return state.ArgumentVersionMismatch
			}
			*info = C.nvmlComputeInstanceProfileInfo_v2_t{
				version: info.version,
				id:      C.uint(c.ID), sliceCount: C.uint(c.Slices), instanceCount: C.uint(c.Instances),
				multiprocessorCount: C.uint(c.Multiprocessors), sharedCopyEngineCount: C.uint(p.Engines.Copy),
				sharedDecoderCount: C.uint(p.Engines.Decoders), sharedEncoderCount: C.uint(p.Engines.Encoders),
				sharedJpegCount: C.uint(p.Engines.JPEG), sharedOfaCount: C.uint(p.Engines.OFA),
			}
			fill(info.name[:], "MIG "+c.Name)
			return state.Success
		})
}

// askComputeProfile answers about a profile by
// NVML_COMPUTE_INSTANCE_PROFILE_* value.
func askComputeProfile[T any](instance C.nvmlGpuInstance_t, slot, engines C.uint, info *T,
	answer func(*catalog.Profile, catalog.ComputeProfile, *T) state.Result) C.nvmlReturn_t {
	return ask(aboutGPUInstance(instance, state.QueryComputeInstanceProfile), info, func(t *target, info *T) state.Result {
		if slot >= catalog.ComputeProfileSlots || engines >= C.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT {
			return state.InvalidArgument
		}
		compute, ok := t.model.MIG.Compute(t.profile(), int(slot))
		if !ok {
			return state.NotSupported
		}
		return answer(t.profile(), compute, info)
	})
}

//export nvmlGpuInstanceCreateComputeInstance
func nvmlGpuInstanceCreateComputeInstance(instance C.nvmlGpuInstance_t, profileID C.uint,
	out *C.nvmlComputeInstance_t) C.nvmlReturn_t {
	if out == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	return change(aboutGPUInstance(instance, state.QueryCreateComputeInstance), func(t *target) error {
		compute, err := t.CreateCompute(t.instance, int(profileID))
		if err != nil {
			return err
		}
		*out = C.nvmlComputeInstance_t(process.handle(compute.UUID))
		return nil
	})
}

//export nvmlComputeInstanceDestroy
func nvmlComputeInstanceDestroy(instance C.nvmlComputeInstance_t) C.nvmlReturn_t {
	return change(aboutComputeInstance(instance, state.QueryDestroyComputeInstance),
		func(t *target) error { return t.DestroyCompute(t.instance, t.compute.ID) })
}

//export nvmlGpuInstanceGetComputeInstances
func nvmlGpuInstanceGetComputeInstances(instance C.nvmlGpuInstance_t, profileID C.uint,
	instances *C.nvmlComputeInstance_t, count *C.uint) C.nvmlReturn_t {
	return ask(aboutGPUInstance(instance, state.QueryComputeInstances), count, func(t *target, count *C.uint) state.Result {
		if _, ok := t.model.MIG.Compute(t.profile(), int(profileID)); !ok {
			return state.NotSupported
		}
		var uuids []string
		for _, compute := range t.instance.Compute {
			if compute.Profile == int(profileID) {
				uuids = append(uuids, compute.UUID)
			}
		}
		return putHandles(uuids, (*unsafe.Pointer)(unsafe.Pointer(instances)), count)
	})
}

//export nvmlGpuInstanceGetComputeInstanceById
func nvmlGpuInstanceGetComputeInstanceById(instance C.nvmlGpuInstance_t, id C.uint, out *C.nvmlComputeInstance_t) C.nvmlReturn_t {
	return ask(aboutGPUInstance(instance, state.QueryComputeInstances), out, func(t *target, out *C.nvmlComputeInstance_t) state.Result {
		compute, ok := t.instance.Find(int(id))
		if !ok {
			return state.NotFound
		}
		*out = C.nvmlComputeInstance_t(process.handle(compute.UUID))
		return state.Success
	})
}

//export nvmlComputeInstanceGetInfo_v2
func nvmlComputeInstanceGetInfo_v2(instance C.nvmlComputeInstance_t, info *C.nvmlComputeInstanceInfo_t) C.nvmlReturn_t {
	return ask(aboutComputeInstance(instance, state.QueryComputeInstanceInfo), info, value(func(t *target) C.nvmlComputeInstanceInfo_t {
		return C.nvmlComputeInstanceInfo_t{
			device: process.device(t.UUID), gpuInstance: C.nvmlGpuInstance_t(process.handle(t.instance.Key)),
			id: C.uint(t.compute.ID), profileId: C.uint(t.compute.Profile),
			placement: C.nvmlComputeInstancePlacement_t{start: C.uint(t.compute.Start), size: C.uint(t.computeProfile().Slices)},
		}
	}))
}
