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

package publish

import (
	"fmt"

	"github.com/memslice/memslice/pkg/gpu"
)

const (
	mi = int64(1) << 20
	gi = int64(1) << 30
)

// card is GPU number n of a node, with this much usable memory in bytes.
func card(n int, memory int64) gpu.GPU {
	const reserved = 400 << 20
	return gpu.GPU{
		UUID:                  fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", n),
		ProductName:           "NVIDIA H100 80GB HBM3",
		Brand:                 "NVIDIA",
		Architecture:          "Hopper",
		CUDAComputeCapability: "9.0",
		CUDADriverVersion:     "13.0",
		DriverVersion:         "580.105.08",
		Memory:                &gpu.Memory{Total: uint64(memory) + reserved, Reserved: reserved},
		Multiprocessors:       132,
		PCIBusID:              fmt.Sprintf("0000:%02x:00.0", n),
		MIG:                   &gpu.MultiInstance{},
	}
}

func cards(n int, memory int64) []gpu.GPU {
	var gpus []gpu.GPU
	for i := range n {
		gpus = append(gpus, card(i+1, memory))
	}
	return gpus
}

func names(devices []gpu.Device) []string {
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	return names
}

// offers has each GPU in shares and whole, with the default amounts.
func offers(gpus []gpu.GPU) []Offer {
	var all []Offer
	for _, g := range gpus {
		all = append(all, Offer{GPU: g, Pool: nodeName, Shares: true, Whole: true, MemoryMin: 256 * mi, MemoryStep: mi})
	}
	return all
}

// mixedOffers has one of each kind that is treated in its own way.
func mixedOffers() []Offer {
	node := int64(1)
	h100 := card(1, 81559*mi-400*mi)
	h100.PCIeRoot, h100.NUMANode = "pci0000:00", &node

	rtx := card(2, 23872*mi+12345)
	rtx.ProductName, rtx.Brand, rtx.Architecture = "NVIDIA GeForce RTX 3090", "GeForce", "Ampere"
	rtx.CUDAComputeCapability, rtx.Multiprocessors, rtx.MIG = "8.6", 82, nil

	unified := card(3, 0)
	unified.ProductName, unified.Architecture, unified.CUDAComputeCapability = "NVIDIA GB10", "Blackwell", "12.1"
	unified.Memory, unified.Multiprocessors, unified.MIG = nil, 48, nil

	mute := gpu.GPU{UUID: card(5, 0).UUID, Memory: &gpu.Memory{Total: 16 << 30}}

	tiny := card(6, 200*mi)

	all := offers([]gpu.GPU{h100, rtx, unified, mute, tiny})

	// As claims ask for it, in every form.
	divided := divisibleCard(7)
	all = append(all, Offer{
		GPU: divided, Pool: PoolName(nodeName, &divided), Shares: true, Whole: true, MIGOnDemand: true, Ranks: 2,
		MemoryMin: 256 * mi, MemoryStep: mi, Profiles: divided.MIG.Profiles,
		Occupied: []gpu.Partition{{Profile: "1g.6gb", Start: 3, Size: 1}},
	})

	// As an administrator has divided it.
	existing := divisibleCard(8)
	existing.MIG.Enabled = true
	existing.MIG.Instances = []gpu.Instance{
		{UUID: "MIG-1", Partition: gpu.Partition{Profile: "2g.12gb", Start: 0, Size: 2}, GPUInstance: 1, Memory: 11968 * mi, Multiprocessors: 28, Engines: gpu.Engines{Copy: 2, Decoders: 2}},
		{UUID: "MIG-2", Partition: gpu.Partition{Profile: "1c.2g.12gb", Start: 2, Size: 2}, GPUInstance: 2, Memory: 11968 * mi, Multiprocessors: 14, Engines: gpu.Engines{Copy: 2, Decoders: 2}},
		{UUID: "MIG-3", Partition: gpu.Partition{Profile: "1c.2g.12gb", Start: 2, Size: 2}, GPUInstance: 2, ComputeInstance: 1, Memory: 11968 * mi, Multiprocessors: 14, Engines: gpu.Engines{Copy: 2, Decoders: 2}},
	}
	return append(all, Offer{GPU: existing, Pool: PoolName(nodeName, &existing), Instances: existing.MIG.Instances, Withheld: gpu.Draining})
}

// divisibleCard is an A30 with what NVML says of its MIG profiles, less the
// larger one with media extensions.
func divisibleCard(n int) gpu.GPU {
	a30 := card(n, 24130*mi)
	a30.ProductName, a30.Architecture, a30.CUDAComputeCapability, a30.Multiprocessors = "NVIDIA A30", "Ampere", "8.0", 56
	a30.MIG = &gpu.MultiInstance{Profiles: []gpu.Profile{
		{Name: "1g.6gb", ID: 14, MemorySlices: 1, ComputeSlices: 1, Count: 4, Memory: 5952 * mi, Multiprocessors: 14, Engines: gpu.Engines{Copy: 1}, Starts: []int{0, 1, 2, 3}},
		{Name: "2g.12gb", ID: 5, MemorySlices: 2, ComputeSlices: 2, Count: 2, Memory: 11968 * mi, Multiprocessors: 28, Engines: gpu.Engines{Copy: 2, Decoders: 2}, Starts: []int{0, 2}},
		{Name: "4g.24gb", ID: 0, MemorySlices: 4, ComputeSlices: 4, Count: 1, Memory: 24064 * mi, Multiprocessors: 56, Engines: gpu.Engines{Copy: 4, Decoders: 4, JPEG: 1, OFA: 1}, Starts: []int{0}},
		{Name: "1g.6gb+me", ID: 21, MemorySlices: 1, ComputeSlices: 1, Count: 1, Memory: 5952 * mi, Multiprocessors: 14, Engines: gpu.Engines{Copy: 1, Decoders: 1, JPEG: 1, OFA: 1}, Starts: []int{0, 1, 2, 3}},
	}}
	return a30
}
