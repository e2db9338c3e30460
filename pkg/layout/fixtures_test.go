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

package layout

import (
	"fmt"
	"slices"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
)

const uuid = "GPU-00000001-0000-4000-8000-000000000000"

// card can be divided into halves and quarters.
func card() gpu.GPU {
	return gpu.GPU{
		UUID: uuid, ProductName: "NVIDIA H100 80GB HBM3", Architecture: "Hopper", CUDAComputeCapability: "9.0",
		Memory: &gpu.Memory{Total: 80 << 30},
		MIG: &gpu.MultiInstance{Profiles: []gpu.Profile{
			{Name: "1g.20gb", MemorySlices: 1, ComputeSlices: 1, Count: 4, Starts: []int{0, 1, 2, 3}},
			{Name: "2g.40gb", MemorySlices: 2, ComputeSlices: 2, Count: 2, Starts: []int{0, 2}},
		}},
	}
}

func inMIGMode() gpu.GPU {
	g := card()
	g.MIG.Enabled, g.MIG.Pending = true, true
	return g
}

func withInstance(places ...gpu.Partition) gpu.GPU {
	g := inMIGMode()
	for i, p := range places {
		g.MIG.Instances = append(g.MIG.Instances, gpu.Instance{UUID: fmt.Sprint("MIG-", i), Partition: p, GPUInstance: i})
	}
	return g
}

// withParts has one GPU instance, divided into two compute instances.
func withParts() gpu.GPU {
	g := withInstance(gpu.Partition{Profile: "1c.2g.40gb", Start: 0, Size: 2}, gpu.Partition{Profile: "1c.2g.40gb", Start: 0, Size: 2}, third)
	g.MIG.Instances[1].GPUInstance, g.MIG.Instances[1].ComputeInstance = 0, 1
	return g
}

func hopper(g gpu.GPU) gpu.GPU {
	g.Architecture, g.CUDAComputeCapability = "Hopper", "9.0"
	return g
}

func ampere(g gpu.GPU) gpu.GPU {
	g.Architecture, g.CUDAComputeCapability = "Ampere", "8.0"
	return g
}

// config is a NodeConfig with defaults, and all fields filled in.
func config(change func(*v1alpha1.GPUConfig)) *v1alpha1.NodeConfig {
	var c v1alpha1.NodeConfig
	if change != nil {
		change(&c.Defaults)
	}
	c.Default()
	return &c
}

func offer(mode v1alpha1.MIGMode, forms ...v1alpha1.Form) *v1alpha1.NodeConfig {
	return config(func(c *v1alpha1.GPUConfig) { c.Offer, c.MIG.Mode = forms, mode })
}

// grant is of a device that the driver publishes by that name.
func grant(pool, device string, form gpu.Form) gpu.Grant {
	return gpu.Grant{Request: "r", Pool: pool, Device: device, Form: form, UUID: uuid}
}

const (
	own     = "node/gpu-00000001-0000"
	slice   = "gpu-00000001-0000-slice"
	whole   = "gpu-00000001-0000"
	quarter = "gpu-00000001-0000-mig-1g-20gb-"
	half    = "gpu-00000001-0000-mig-2g-40gb-"
)

var (
	allForms = []v1alpha1.Form{v1alpha1.FormSlice, v1alpha1.FormGPU, v1alpha1.FormMIG}
	first    = gpu.Partition{Profile: "1g.20gb", Start: 0, Size: 1}
	third    = gpu.Partition{Profile: "1g.20gb", Start: 2, Size: 1}

	quarters   = []string{quarter + "0", quarter + "1", quarter + "2", quarter + "3"}
	partitions = slices.Concat(quarters, []string{half + "0", half + "2"})
)

func adminOf(g gpu.Grant) gpu.Grant {
	g.AdminAccess = true
	return g
}

func heldPartition() gpu.Grant {
	g := grant(own, quarter+"0", gpu.MIG)
	g.Partition = first
	return g
}
