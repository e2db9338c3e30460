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
		MIGCapable:            true,
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

// mixedNode has one of each kind that is treated in its own way.
func mixedNode() []gpu.GPU {
	node := int64(1)
	h100 := card(1, 81559*mi-400*mi)
	h100.PCIeRoot, h100.NUMANode = "pci0000:00", &node

	rtx := card(2, 23872*mi+12345)
	rtx.ProductName, rtx.Brand, rtx.Architecture = "NVIDIA GeForce RTX 3090", "GeForce", "Ampere"
	rtx.CUDAComputeCapability, rtx.Multiprocessors, rtx.MIGCapable = "8.6", 82, false

	unified := card(3, 0)
	unified.ProductName, unified.Architecture, unified.CUDAComputeCapability = "NVIDIA GB10", "Blackwell", "12.1"
	unified.Memory, unified.Multiprocessors, unified.MIGCapable = nil, 48, false

	partitioned := card(4, 40*gi)
	partitioned.MIGEnabled = true

	mute := gpu.GPU{UUID: card(5, 0).UUID, Memory: &gpu.Memory{Total: 16 << 30}}

	tiny := card(6, 200*mi)
	return []gpu.GPU{h100, rtx, unified, partitioned, mute, tiny}
}
