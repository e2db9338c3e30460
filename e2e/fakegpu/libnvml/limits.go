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
	return change(aboutDevice(device, state.QuerySetMemoryLimits), func(t *target) error {
		if limits == nil {
			return &state.Refusal{Result: state.InvalidArgument}
		}
		if os.Geteuid() != 0 {
			return &state.Refusal{Result: state.NoPermission}
		}
		cgroup, result := cgroupOf(t, limits.nameSpace)
		if result != state.Success {
			return &state.Refusal{Result: result}
		}
		return t.SetLimit(cgroup, uint64(limits.softLimit), uint64(limits.hardLimit), t.model.MemoryBytes)
	})
}

//export nvmlDeviceGetMemoryLimits_v1
func nvmlDeviceGetMemoryLimits_v1(device C.nvmlDevice_t, limits *C.nvmlGetMemoryLimits_v1_t) C.nvmlReturn_t {
	return ask(aboutDevice(device, state.QueryMemoryLimits), limits, func(t *target, limits *C.nvmlGetMemoryLimits_v1_t) state.Result {
		cgroup, result := cgroupOf(t, limits.nameSpace)
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

// cgroupOf opens a cgroup by its path in the caller's view. A MIG device, or a
// GPU in MIG mode, has no limits of cgroups.
func cgroupOf(t *target, path *C.char) (state.Cgroup, state.Result) {
	switch {
	case !isGPU(t) || t.MIG.Current:
		return state.Cgroup{}, state.NotSupported
	case path == nil:
		return state.Cgroup{}, state.InvalidArgument
	}
	cgroup, err := process.store.Cgroup(C.GoString(path))
	if err != nil {
		return state.Cgroup{}, state.OperatingSystem
	}
	return cgroup, state.Success
}
