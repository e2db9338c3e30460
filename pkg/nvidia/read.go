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

package nvidia

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/memslice/memslice/pkg/gpu"
)

// read asks all there is to know about one GPU. What is not answered stays at
// its zero value.
func (t *target) read(handle nvml.Device, g *gpu.GPU) {
	g.ProductName, _ = query(t, "nvmlDeviceGetName", handle.GetName)
	if brand, ok := query(t, "nvmlDeviceGetBrand", handle.GetBrand); ok {
		g.Brand = brandNames[brand]
	}
	if architecture, ok := query(t, "nvmlDeviceGetArchitecture", handle.GetArchitecture); ok {
		g.Architecture = architectureNames[architecture]
	}
	g.Memory = t.memory(handle)
	t.compute(handle, g)
	t.mig(handle, g)
	t.limits(handle, g)
	if pci, ok := query(t, "nvmlDeviceGetPciInfo_v3", handle.GetPciInfo); ok {
		g.PCIBusID = busID(pci)
		t.topology(g)
	}
}

// memory tells what the driver keeps for itself, where the driver is new
// enough (R510). It is nil for GPUs that have no memory of their own.
func (t *target) memory(handle nvml.Device) *gpu.Memory {
	if t.has("nvmlDeviceGetMemoryInfo_v2") {
		if m, ok := query(t, "nvmlDeviceGetMemoryInfo_v2", handle.GetMemoryInfo_v2); ok {
			return &gpu.Memory{Total: m.Total, Reserved: m.Reserved}
		}
		return nil
	}
	if m, ok := query(t, "nvmlDeviceGetMemoryInfo", handle.GetMemoryInfo); ok {
		return &gpu.Memory{Total: m.Total}
	}
	return nil
}

// compute counts multiprocessors by their cores. NVML tells the number of
// multiprocessors itself only for MIG profiles, the largest of which may have
// fewer than the GPU has (98 of 108 on an A100); and it tells the number of
// cores only outside MIG mode.
func (t *target) compute(handle nvml.Device, g *gpu.GPU) {
	capability, ok := query(t, "nvmlDeviceGetCudaComputeCapability", pair(handle.GetCudaComputeCapability))
	if !ok {
		return
	}
	g.CUDAComputeCapability = fmt.Sprintf("%d.%d", capability[0], capability[1])
	perMultiprocessor := coresPerMultiprocessor(capability[0], capability[1])
	if cores, ok := query(t, "nvmlDeviceGetNumGpuCores", handle.GetNumGpuCores); ok && perMultiprocessor > 0 {
		g.Multiprocessors = cores / perMultiprocessor
	}
}

// topology comes from the kernel, as NVML's idea of it lacks the root complex.
func (t *target) topology(g *gpu.GPU) {
	sysfs := deviceattribute.WithFS(t.sysfs)
	if root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(g.PCIBusID, sysfs); err != nil {
		t.problem("PCIe root in sysfs", err, false)
	} else {
		g.PCIeRoot = *root.Value.StringValue
	}
	// An error here is mostly firmware that does not tell, which is no problem.
	if node, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(g.PCIBusID, deviceattribute.ScalarAttribute, sysfs); err == nil {
		g.NUMANode = node.Value.IntValue
	}
}

// pair makes one answer of two.
func pair(ask func() (int, int, nvml.Return)) func() ([2]int, nvml.Return) {
	return func() ([2]int, nvml.Return) {
		a, b, ret := ask()
		return [2]int{a, b}, ret
	}
}
