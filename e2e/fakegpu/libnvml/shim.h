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

// Types that let Go state NVML's prototypes exactly: cgo repeats the signature
// of every exported function after including NVIDIA's header, so that the
// compiler refuses one that differs from it.
#ifndef FAKEGPU_SHIM_H
#define FAKEGPU_SHIM_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

typedef const char const_char;
typedef const nvmlGpuInstancePlacement_t const_nvmlGpuInstancePlacement_t;

// The version that a caller writes into a versioned struct.
enum {
	MEMORY_V2 = nvmlMemory_v2,
	GPU_INSTANCE_PROFILE_INFO_V2 = nvmlGpuInstanceProfileInfo_v2,
	GPU_INSTANCE_PROFILE_INFO_V3 = nvmlGpuInstanceProfileInfo_v3,
	COMPUTE_INSTANCE_PROFILE_INFO_V2 = nvmlComputeInstanceProfileInfo_v2,
	COMPUTE_INSTANCE_PROFILE_INFO_V3 = nvmlComputeInstanceProfileInfo_v3,
	ADDRESSING_MODE_V1 = nvmlDeviceAddressingMode_v1,
};

// fakegpu_library_path is the path that this library was loaded from, or NULL.
const char *fakegpu_library_path(void);

// fakegpu_return_signals gives the loading process its signal handlers back.
void fakegpu_return_signals(void);

#endif
