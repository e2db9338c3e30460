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
	"fmt"
	"slices"
	"strings"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

//export nvmlDeviceGetCount_v2
func nvmlDeviceGetCount_v2(count *C.uint) C.nvmlReturn_t {
	node, result := process.current()
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	if count == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	*count = C.uint(len(node.Present()))
	return C.NVML_SUCCESS
}

// find hands out the handle of what match names on the first GPU where it names
// anything.
func find(device *C.nvmlDevice_t, missing state.Result, match func(index int, gpu *state.GPU) string) C.nvmlReturn_t {
	node, result := process.current()
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	if device == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	for index, gpu := range node.Present() {
		name := match(index, gpu)
		if name == "" {
			continue
		}
		if result := process.failure(gpu, state.QueryHandle); result != state.Success {
			return C.nvmlReturn_t(result)
		}
		*device = process.device(name)
		return C.NVML_SUCCESS
	}
	return C.nvmlReturn_t(missing)
}

// gpuIf names a GPU that matches.
func gpuIf(matches bool, gpu *state.GPU) string {
	if matches {
		return gpu.UUID
	}
	return ""
}

//export nvmlDeviceGetHandleByIndex_v2
func nvmlDeviceGetHandleByIndex_v2(index C.uint, device *C.nvmlDevice_t) C.nvmlReturn_t {
	return find(device, state.InvalidArgument, func(i int, gpu *state.GPU) string { return gpuIf(i == int(index), gpu) })
}

//export nvmlDeviceGetHandleByUUID
func nvmlDeviceGetHandleByUUID(uuid *C.const_char, device *C.nvmlDevice_t) C.nvmlReturn_t {
	if uuid == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	wanted := goString(uuid)
	return find(device, state.NotFound, func(_ int, gpu *state.GPU) string {
		if gpu.UUID == wanted {
			return wanted
		}
		for _, d := range gpu.MIGDevices() {
			if d.Compute.UUID == wanted {
				return wanted
			}
		}
		return ""
	})
}

//export nvmlDeviceGetHandleByPciBusId_v2
func nvmlDeviceGetHandleByPciBusId_v2(busID *C.const_char, device *C.nvmlDevice_t) C.nvmlReturn_t {
	if busID == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	wanted := goString(busID)
	return find(device, state.NotFound, func(_ int, gpu *state.GPU) string {
		return gpuIf(state.SameBusID(gpu.BusID, wanted), gpu)
	})
}

//export nvmlDeviceGetHandleBySerial
func nvmlDeviceGetHandleBySerial(serial *C.const_char, device *C.nvmlDevice_t) C.nvmlReturn_t {
	if serial == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	wanted := goString(serial)
	return find(device, state.NotFound, func(_ int, gpu *state.GPU) string { return gpuIf(gpu.Serial == wanted, gpu) })
}

func goString(text *C.const_char) string { return C.GoString((*C.char)(text)) }

//export nvmlDeviceGetName
func nvmlDeviceGetName(device C.nvmlDevice_t, name *C.char, length C.uint) C.nvmlReturn_t {
	return askText(aboutDevice(device, state.QueryName), name, length, func(t *target) string {
		if isMIGDevice(t) {
			return t.model.Name + " MIG " + t.computeProfile().Name
		}
		return t.model.Name
	})
}

//export nvmlDeviceGetUUID
func nvmlDeviceGetUUID(device C.nvmlDevice_t, uuid *C.char, length C.uint) C.nvmlReturn_t {
	return askText(aboutDevice(device, state.QueryUUID), uuid, length, func(t *target) string {
		if isMIGDevice(t) {
			return t.compute.UUID
		}
		return t.UUID
	})
}

//export nvmlDeviceGetSerial
func nvmlDeviceGetSerial(device C.nvmlDevice_t, serial *C.char, length C.uint) C.nvmlReturn_t {
	return askText(aboutGPU(device, state.QuerySerial), serial, length, func(g *target) string { return g.Serial })
}

//export nvmlDeviceGetIndex
func nvmlDeviceGetIndex(device C.nvmlDevice_t, index *C.uint) C.nvmlReturn_t {
	return ask(aboutDevice(device, state.QueryIndex), index, value(func(t *target) C.uint {
		if isMIGDevice(t) {
			return C.uint(slices.IndexFunc(t.MIGDevices(), func(d state.MIGDevice) bool { return d.Compute == t.compute }))
		}
		return C.uint(t.index)
	}))
}

//export nvmlDeviceGetMinorNumber
func nvmlDeviceGetMinorNumber(device C.nvmlDevice_t, minor *C.uint) C.nvmlReturn_t {
	return ask(aboutGPU(device, state.QueryMinorNumber), minor, value(func(g *target) C.uint { return C.uint(g.Minor) }))
}

//export nvmlDeviceGetBrand
func nvmlDeviceGetBrand(device C.nvmlDevice_t, brand *C.nvmlBrandType_t) C.nvmlReturn_t {
	return ask(aboutGPU(device, state.QueryBrand), brand,
		value(func(g *target) C.nvmlBrandType_t { return C.nvmlBrandType_t(g.model.Brand) }))
}

//export nvmlDeviceGetArchitecture
func nvmlDeviceGetArchitecture(device C.nvmlDevice_t, architecture *C.nvmlDeviceArchitecture_t) C.nvmlReturn_t {
	return ask(aboutGPU(device, state.QueryArchitecture), architecture,
		value(func(g *target) C.nvmlDeviceArchitecture_t { return C.nvmlDeviceArchitecture_t(g.model.Architecture) }))
}

//export nvmlDeviceGetCudaComputeCapability
func nvmlDeviceGetCudaComputeCapability(device C.nvmlDevice_t, major, minor *C.int) C.nvmlReturn_t {
	return ask(aboutGPU(device, state.QueryComputeCapability), major, func(g *target, major *C.int) state.Result {
		if minor == nil {
			return state.InvalidArgument
		}
		*major, *minor = C.int(g.model.ComputeMajor), C.int(g.model.ComputeMinor)
		return state.Success
	})
}

//export nvmlDeviceGetNumGpuCores
func nvmlDeviceGetNumGpuCores(device C.nvmlDevice_t, cores *C.uint) C.nvmlReturn_t {
	return ask(aboutDevice(device, state.QueryNumGPUCores), cores, func(g *target, cores *C.uint) state.Result {
		if g.MIG.Current {
			return state.NotSupported
		}
		*cores = C.uint(g.model.Cores)
		return state.Success
	})
}

//export nvmlDeviceGetAttributes_v2
func nvmlDeviceGetAttributes_v2(device C.nvmlDevice_t, attributes *C.nvmlDeviceAttributes_t) C.nvmlReturn_t {
	return ask(aboutDevice(device, state.QueryAttributes), attributes,
		func(t *target, attributes *C.nvmlDeviceAttributes_t) state.Result {
			if !isMIGDevice(t) {
				return state.NotSupported
			}
			// The engines are the GPU instance's, whose compute instances share
			// them.
			profile, compute := t.profile(), t.computeProfile()
			*attributes = C.nvmlDeviceAttributes_t{
				multiprocessorCount:   C.uint(compute.Multiprocessors),
				sharedCopyEngineCount: C.uint(profile.Engines.Copy), sharedDecoderCount: C.uint(profile.Engines.Decoders),
				sharedEncoderCount: C.uint(profile.Engines.Encoders), sharedJpegCount: C.uint(profile.Engines.JPEG),
				sharedOfaCount:        C.uint(profile.Engines.OFA),
				gpuInstanceSliceCount: C.uint(profile.ComputeSlices), computeInstanceSliceCount: C.uint(compute.Slices),
				memorySizeMB: C.ulonglong(profile.MemoryMiB),
			}
			return state.Success
		})
}

//export nvmlDeviceGetNumaNodeId
func nvmlDeviceGetNumaNodeId(device C.nvmlDevice_t, node *C.uint) C.nvmlReturn_t {
	// The node of the GPU's own memory, which only coherent platforms have.
	// The host's node is in sysfs.
	return ask(aboutGPU(device, state.QueryNUMANodeID), node, func(*target, *C.uint) state.Result { return state.NotSupported })
}

//export nvmlDeviceGetAddressingMode
func nvmlDeviceGetAddressingMode(device C.nvmlDevice_t, mode *C.nvmlDeviceAddressingMode_t) C.nvmlReturn_t {
	return ask(aboutGPU(device, state.QueryAddressingMode), mode, func(_ *target, mode *C.nvmlDeviceAddressingMode_t) state.Result {
		if mode.version != C.ADDRESSING_MODE_V1 {
			return state.ArgumentVersionMismatch
		}
		mode.value = C.NVML_DEVICE_ADDRESSING_MODE_NONE
		return state.Success
	})
}

//export nvmlDeviceGetPciInfo_v3
func nvmlDeviceGetPciInfo_v3(device C.nvmlDevice_t, pci *C.nvmlPciInfo_t) C.nvmlReturn_t {
	return ask(aboutGPU(device, state.QueryPCIInfo), pci, func(g *target, pci *C.nvmlPciInfo_t) state.Result {
		var domain, bus, slot, function C.uint
		if _, err := fmt.Sscanf(g.BusID, "%x:%x:%x.%x", &domain, &bus, &slot, &function); err != nil {
			return state.Unknown
		}
		pci.domain, pci.bus, pci.device = domain, bus, slot
		pci.pciDeviceId, pci.pciSubSystemId = C.uint(g.model.PCIDevice), C.uint(g.model.PCISubsystem)
		fill(pci.busIdLegacy[:], strings.ToUpper(g.BusID))
		fill(pci.busId[:], fmt.Sprintf("%08X:%02X:%02X.%X", domain, bus, slot, function))
		return state.Success
	})
}
