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

//export nvmlDeviceGetGpuInstanceProfileInfo
func nvmlDeviceGetGpuInstanceProfileInfo(device C.nvmlDevice_t, slot C.uint,
	info *C.nvmlGpuInstanceProfileInfo_t) C.nvmlReturn_t {
	return askProfile(device, slot, info, func(p *catalog.Profile, info *C.nvmlGpuInstanceProfileInfo_t) state.Result {
		*info = C.nvmlGpuInstanceProfileInfo_t{
			id: C.uint(p.ID), sliceCount: C.uint(p.ComputeSlices), instanceCount: C.uint(p.Instances),
			multiprocessorCount: C.uint(p.Multiprocessors), copyEngineCount: C.uint(p.Engines.Copy),
			decoderCount: C.uint(p.Engines.Decoders), encoderCount: C.uint(p.Engines.Encoders), jpegCount: C.uint(p.Engines.JPEG), ofaCount: C.uint(p.Engines.OFA),
			memorySizeMB: C.ulonglong(p.MemoryMiB),
		}
		return state.Success
	})
}

// The versioned function takes version 2 or 3 of the struct in place of the
// version 2 that its prototype names.
//
//export nvmlDeviceGetGpuInstanceProfileInfoV
func nvmlDeviceGetGpuInstanceProfileInfoV(device C.nvmlDevice_t, slot C.uint,
	info *C.nvmlGpuInstanceProfileInfo_v2_t) C.nvmlReturn_t {
	return askProfile(device, slot, info, func(p *catalog.Profile, info *C.nvmlGpuInstanceProfileInfo_v2_t) state.Result {
		switch info.version {
		case C.GPU_INSTANCE_PROFILE_INFO_V2:
			fillProfileV2(p, info)
		case C.GPU_INSTANCE_PROFILE_INFO_V3:
			fillProfileV3(p, (*C.nvmlGpuInstanceProfileInfo_v3_t)(unsafe.Pointer(info)))
		default:
			return state.ArgumentVersionMismatch
		}
		return state.Success
	})
}

func fillProfileV2(p *catalog.Profile, info *C.nvmlGpuInstanceProfileInfo_v2_t) {
	*info = C.nvmlGpuInstanceProfileInfo_v2_t{
		version: info.version,
		id:      C.uint(p.ID), sliceCount: C.uint(p.ComputeSlices), instanceCount: C.uint(p.Instances),
		multiprocessorCount: C.uint(p.Multiprocessors), copyEngineCount: C.uint(p.Engines.Copy),
		decoderCount: C.uint(p.Engines.Decoders), encoderCount: C.uint(p.Engines.Encoders), jpegCount: C.uint(p.Engines.JPEG), ofaCount: C.uint(p.Engines.OFA),
		memorySizeMB: C.ulonglong(p.MemoryMiB),
	}
	fill(info.name[:], "MIG "+p.Name)
}

func fillProfileV3(p *catalog.Profile, info *C.nvmlGpuInstanceProfileInfo_v3_t) {
	*info = C.nvmlGpuInstanceProfileInfo_v3_t{
		version: info.version,
		id:      C.uint(p.ID), sliceCount: C.uint(p.ComputeSlices), instanceCount: C.uint(p.Instances),
		multiprocessorCount: C.uint(p.Multiprocessors), copyEngineCount: C.uint(p.Engines.Copy),
		decoderCount: C.uint(p.Engines.Decoders), encoderCount: C.uint(p.Engines.Encoders), jpegCount: C.uint(p.Engines.JPEG), ofaCount: C.uint(p.Engines.OFA),
		memorySizeMB: C.ulonglong(p.MemoryMiB),
	}
	fill(info.name[:], "MIG "+p.Name)
}

// askProfile answers about a profile by NVML_GPU_INSTANCE_PROFILE_* value.
func askProfile[T any](device C.nvmlDevice_t, slot C.uint, info *T,
	answer func(*catalog.Profile, *T) state.Result) C.nvmlReturn_t {
	return askMIG(device, state.QueryGPUInstanceProfile, info, func(_ *target, geometry *catalog.Geometry, info *T) state.Result {
		if slot >= catalog.ProfileSlots {
			return state.InvalidArgument
		}
		profile, ok := geometry.BySlot(int(slot))
		if !ok {
			return state.NotSupported
		}
		return answer(profile, info)
	})
}
