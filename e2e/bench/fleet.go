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

package main

import (
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/pkg/gpu"
)

const (
	gpusPerNode = 8
	gpuModel    = "h100-sxm5-80gb"
)

// machine is a node before it is published.
type machine struct {
	name string
	gpus []gpu.GPU
}

// fleet makes machines that differ in names only.
func fleet(nodes int) ([]machine, error) {
	model, err := catalog.Lookup(gpuModel)
	if err != nil {
		return nil, err
	}
	machines := make([]machine, nodes)
	for n := range machines {
		machines[n].name = fmt.Sprintf("node-%04d", n)
		for i := range gpusPerNode {
			machines[n].gpus = append(machines[n].gpus, card(model, n, i))
		}
	}
	return machines, nil
}

// card is as the plugin reads an idle GPU whose MIG mode is off.
func card(model *catalog.Model, node, index int) gpu.GPU {
	return gpu.GPU{
		UUID:                  fmt.Sprintf("GPU-%08x-%04x-4000-8000-000000000000", node, index),
		ProductName:           model.Name,
		Brand:                 "NVIDIA",
		Architecture:          "Hopper",
		CUDAComputeCapability: fmt.Sprintf("%d.%d", model.ComputeMajor, model.ComputeMinor),
		CUDADriverVersion:     "13.0",
		DriverVersion:         "580.105.08",
		Memory:                &gpu.Memory{Total: model.MemoryBytes, Reserved: model.ReservedBytes},
		Multiprocessors:       model.Multiprocessors,
		PCIBusID:              fmt.Sprintf("0000:%02x:00.0", 0x10*(index+1)),
		PCIeRoot:              fmt.Sprintf("pci0000:%02x", 0x10*(index+1)),
		NUMANode:              ptr.To(int64(index / (gpusPerNode / 2))),
		MIG:                   &gpu.MultiInstance{Profiles: profiles(model.MIG)},
	}
}

func profiles(geometry *catalog.Geometry) []gpu.Profile {
	all := make([]gpu.Profile, len(geometry.Profiles))
	for i, p := range geometry.Profiles {
		all[i] = gpu.Profile{
			Name:            p.Name,
			ID:              p.ID,
			MemorySlices:    p.MemorySlices,
			ComputeSlices:   p.ComputeSlices,
			Count:           p.Instances,
			Memory:          int64(p.MemoryMiB * catalog.MiB),
			Multiprocessors: p.Multiprocessors,
			Engines:         gpu.Engines(p.Engines),
			Starts:          p.Starts,
		}
	}
	return all
}
