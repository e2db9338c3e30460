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

//go:build libnvml && r615

package main

/*
#include "shim.h"
*/
import "C"

import (
	"os"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

//export nvmlDeviceSetMemoryLimits_v1
func nvmlDeviceSetMemoryLimits_v1(device C.nvmlDevice_t, limits *C.nvmlSetMemoryLimits_v1_t) C.nvmlReturn_t {
	if limits == nil || limits.nameSpace == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	cgroup, result := openCgroup(C.GoString(limits.nameSpace))
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	return change(limitsOf(device, state.QuerySetMemoryLimits), func(t *target) error {
		switch {
		case os.Geteuid() != 0:
			return &state.Refusal{Result: state.NoPermission}
		case !isGPU(t):
			return &state.Refusal{Result: state.NotSupported}
		}
		return t.SetLimit(cgroup, uint64(limits.softLimit), uint64(limits.hardLimit), t.model.MemoryBytes)
	})
}

//export nvmlDeviceGetMemoryLimits_v1
func nvmlDeviceGetMemoryLimits_v1(device C.nvmlDevice_t, limits *C.nvmlGetMemoryLimits_v1_t) C.nvmlReturn_t {
	return ask(limitsOf(device, state.QueryMemoryLimits), limits, func(t *target, limits *C.nvmlGetMemoryLimits_v1_t) state.Result {
		if !isGPU(t) || t.MIG.Current {
			return state.NotSupported
		}
		if limits.nameSpace == nil {
			return state.InvalidArgument
		}
		cgroup, result := openCgroup(C.GoString(limits.nameSpace))
		if result != state.Success {
			return result
		}
		limit, used, found := t.LimitOf(cgroup)
		if !found {
			return state.NotFound
		}
		limits.softLimit, limits.hardLimit, limits.currentUsed = C.ulonglong(limit.Soft), C.ulonglong(limit.Hard), C.ulonglong(used)
		return state.Success
	})
}

// limitsOf is about a GPU; a MIG device is refused, not taken for no handle.
func limitsOf(device C.nvmlDevice_t, name state.Query) query { return aboutDevice(device, name) }

func openCgroup(path string) (state.Cgroup, state.Result) {
	cgroup, err := state.CgroupAt(path)
	if err != nil {
		return cgroup, state.OperatingSystem
	}
	return cgroup, state.Success
}
