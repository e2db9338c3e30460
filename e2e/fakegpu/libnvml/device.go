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

// find hands out the handle of the GPU that matches.
func find(device *C.nvmlDevice_t, missing state.Result, match func(index int, gpu *state.GPU) bool) C.nvmlReturn_t {
	node, result := process.current()
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	if device == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	for index, gpu := range node.Present() {
		if !match(index, gpu) {
			continue
		}
		if result := failure(gpu, state.QueryHandle); result != state.Success {
			return C.nvmlReturn_t(result)
		}
		*device = process.handle(gpu.UUID)
		return C.NVML_SUCCESS
	}
	return C.nvmlReturn_t(missing)
}

//export nvmlDeviceGetHandleByIndex_v2
func nvmlDeviceGetHandleByIndex_v2(index C.uint, device *C.nvmlDevice_t) C.nvmlReturn_t {
	return find(device, state.InvalidArgument, func(i int, _ *state.GPU) bool { return i == int(index) })
}

//export nvmlDeviceGetHandleByUUID
func nvmlDeviceGetHandleByUUID(uuid *C.const_char, device *C.nvmlDevice_t) C.nvmlReturn_t {
	if uuid == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	wanted := goString(uuid)
	return find(device, state.NotFound, func(_ int, gpu *state.GPU) bool { return gpu.UUID == wanted })
}

//export nvmlDeviceGetHandleByPciBusId_v2
func nvmlDeviceGetHandleByPciBusId_v2(busID *C.const_char, device *C.nvmlDevice_t) C.nvmlReturn_t {
	if busID == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	wanted := goString(busID)
	return find(device, state.NotFound, func(_ int, gpu *state.GPU) bool { return state.SameBusID(gpu.BusID, wanted) })
}

//export nvmlDeviceGetHandleBySerial
func nvmlDeviceGetHandleBySerial(serial *C.const_char, device *C.nvmlDevice_t) C.nvmlReturn_t {
	if serial == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	wanted := goString(serial)
	return find(device, state.NotFound, func(_ int, gpu *state.GPU) bool { return gpu.Serial == wanted })
}

func goString(text *C.const_char) string { return C.GoString((*C.char)(text)) }

//export nvmlDeviceGetName
func nvmlDeviceGetName(device C.nvmlDevice_t, name *C.char, length C.uint) C.nvmlReturn_t {
	return askText(device, state.QueryName, name, length, func(g *gpu) string { return g.model.Name })
}

//export nvmlDeviceGetUUID
func nvmlDeviceGetUUID(device C.nvmlDevice_t, uuid *C.char, length C.uint) C.nvmlReturn_t {
	return askText(device, state.QueryUUID, uuid, length, func(g *gpu) string { return g.UUID })
}

//export nvmlDeviceGetSerial
func nvmlDeviceGetSerial(device C.nvmlDevice_t, serial *C.char, length C.uint) C.nvmlReturn_t {
	return askText(device, state.QuerySerial, serial, length, func(g *gpu) string { return g.Serial })
}

//export nvmlDeviceGetIndex
func nvmlDeviceGetIndex(device C.nvmlDevice_t, index *C.uint) C.nvmlReturn_t {
	return ask(device, state.QueryIndex, index, value(func(g *gpu) C.uint { return C.uint(g.index) }))
}

//export nvmlDeviceGetMinorNumber
func nvmlDeviceGetMinorNumber(device C.nvmlDevice_t, minor *C.uint) C.nvmlReturn_t {
	return ask(device, state.QueryMinorNumber, minor, value(func(g *gpu) C.uint { return C.uint(g.Minor) }))
}

//export nvmlDeviceGetBrand
func nvmlDeviceGetBrand(device C.nvmlDevice_t, brand *C.nvmlBrandType_t) C.nvmlReturn_t {
	return ask(device, state.QueryBrand, brand,
		value(func(g *gpu) C.nvmlBrandType_t { return C.nvmlBrandType_t(g.model.Brand) }))
}

//export nvmlDeviceGetArchitecture
func nvmlDeviceGetArchitecture(device C.nvmlDevice_t, architecture *C.nvmlDeviceArchitecture_t) C.nvmlReturn_t {
	return ask(device, state.QueryArchitecture, architecture,
		value(func(g *gpu) C.nvmlDeviceArchitecture_t { return C.nvmlDeviceArchitecture_t(g.model.Architecture) }))
}

//export nvmlDeviceGetCudaComputeCapability
func nvmlDeviceGetCudaComputeCapability(device C.nvmlDevice_t, major, minor *C.int) C.nvmlReturn_t {
	return ask(device, state.QueryComputeCapability, major, func(g *gpu, major *C.int) state.Result {
		if minor == nil {
			return state.InvalidArgument
		}
		*major, *minor = C.int(g.model.ComputeMajor), C.int(g.model.ComputeMinor)
		return state.Success
	})
}

//export nvmlDeviceGetNumGpuCores
func nvmlDeviceGetNumGpuCores(device C.nvmlDevice_t, cores *C.uint) C.nvmlReturn_t {
	return ask(device, state.QueryNumGPUCores, cores, func(g *gpu, cores *C.uint) state.Result {
		if g.MIG.Current {
			return state.NotSupported
		}
		*cores = C.uint(g.model.Cores)
		return state.Success
	})
}

//export nvmlDeviceGetAttributes_v2
func nvmlDeviceGetAttributes_v2(device C.nvmlDevice_t, attributes *C.nvmlDeviceAttributes_t) C.nvmlReturn_t {
	// Only MIG devices have attributes.
	return ask(device, state.QueryAttributes, attributes,
		func(*gpu, *C.nvmlDeviceAttributes_t) state.Result { return state.NotSupported })
}

//export nvmlDeviceGetNumaNodeId
func nvmlDeviceGetNumaNodeId(device C.nvmlDevice_t, node *C.uint) C.nvmlReturn_t {
	// The node of the GPU's own memory, which only coherent platforms have.
	// The host's node is in sysfs.
	return ask(device, state.QueryNUMANodeID, node, func(*gpu, *C.uint) state.Result { return state.NotSupported })
}

//export nvmlDeviceGetAddressingMode
func nvmlDeviceGetAddressingMode(device C.nvmlDevice_t, mode *C.nvmlDeviceAddressingMode_t) C.nvmlReturn_t {
	return ask(device, state.QueryAddressingMode, mode, func(_ *gpu, mode *C.nvmlDeviceAddressingMode_t) state.Result {
		if mode.version != C.ADDRESSING_MODE_V1 {
			return state.ArgumentVersionMismatch
		}
		mode.value = C.NVML_DEVICE_ADDRESSING_MODE_NONE
		return state.Success
	})
}

//export nvmlDeviceGetPciInfo_v3
func nvmlDeviceGetPciInfo_v3(device C.nvmlDevice_t, pci *C.nvmlPciInfo_t) C.nvmlReturn_t {
	return ask(device, state.QueryPCIInfo, pci, func(g *gpu, pci *C.nvmlPciInfo_t) state.Result {
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
