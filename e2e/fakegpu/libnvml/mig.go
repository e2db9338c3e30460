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
	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

//export nvmlDeviceSetMigMode
func nvmlDeviceSetMigMode(device C.nvmlDevice_t, mode C.uint, activationStatus *C.nvmlReturn_t) C.nvmlReturn_t {
	if activationStatus == nil || mode != C.NVML_DEVICE_MIG_DISABLE && mode != C.NVML_DEVICE_MIG_ENABLE {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	return change(aboutGPU(device, state.QuerySetMIGMode), func(t *target) error {
		activation, err := t.SetMIGMode(mode == C.NVML_DEVICE_MIG_ENABLE)
		if err != nil {
			return err
		}
		*activationStatus = C.nvmlReturn_t(resultOf(activation))
		return nil
	})
}

//export nvmlDeviceGetMigMode
func nvmlDeviceGetMigMode(device C.nvmlDevice_t, current, pending *C.uint) C.nvmlReturn_t {
	return askMIG(device, state.QueryMIGMode, current, func(t *target, _ *catalog.Geometry, current *C.uint) state.Result {
		if pending == nil {
			return state.InvalidArgument
		}
		*current, *pending = enabled(t.MIG.Current), enabled(t.MIG.Pending)
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
	return ask(aboutGPU(device, state.QueryMaxMIGDeviceCount), count, value(maxMIGDevices))
}

// maxMIGDevices: each compute instance has at least one compute slice.
func maxMIGDevices(t *target) C.uint {
	if !t.MIG.Current {
		return 0
	}
	return C.uint(t.model.MIG.ComputeSlices)
}

//export nvmlDeviceIsMigDeviceHandle
func nvmlDeviceIsMigDeviceHandle(device C.nvmlDevice_t, isMIG *C.uint) C.nvmlReturn_t {
	return ask(aboutDevice(device, state.QueryMIGDeviceHandle), isMIG, value(func(t *target) C.uint {
		if isMIGDevice(t) {
			return 1
		}
		return 0
	}))
}

//export nvmlDeviceGetMigDeviceHandleByIndex
func nvmlDeviceGetMigDeviceHandleByIndex(device C.nvmlDevice_t, index C.uint, mig *C.nvmlDevice_t) C.nvmlReturn_t {
	return askMIG(device, state.QueryMIGDeviceHandle, mig, func(t *target, _ *catalog.Geometry, mig *C.nvmlDevice_t) state.Result {
		devices := t.MIGDevices()
		switch {
		case t.MIG.Current && index >= maxMIGDevices(t):
			return state.InvalidArgument
		case int(index) >= len(devices):
			return state.NotFound
		}
		*mig = process.device(devices[index].Compute.UUID)
		return state.Success
	})
}

//export nvmlDeviceGetDeviceHandleFromMigDeviceHandle
func nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig C.nvmlDevice_t, device *C.nvmlDevice_t) C.nvmlReturn_t {
	return ask(aboutMIGDevice(mig, state.QueryMIGDeviceHandle), device,
		value(func(t *target) C.nvmlDevice_t { return process.device(t.UUID) }))
}

//export nvmlDeviceGetGpuInstanceId
func nvmlDeviceGetGpuInstanceId(mig C.nvmlDevice_t, id *C.uint) C.nvmlReturn_t {
	return ask(aboutMIGDevice(mig, state.QueryGPUInstanceID), id, value(func(t *target) C.uint { return C.uint(t.instance.ID) }))
}

//export nvmlDeviceGetComputeInstanceId
func nvmlDeviceGetComputeInstanceId(mig C.nvmlDevice_t, id *C.uint) C.nvmlReturn_t {
	return ask(aboutMIGDevice(mig, state.QueryComputeInstanceID), id, value(func(t *target) C.uint { return C.uint(t.compute.ID) }))
}
