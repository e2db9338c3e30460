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
	"cmp"
	"fmt"
	"slices"

	"github.com/memslice/memslice/pkg/gpu"
)

// Devices lists what is offered of each GPU, in publishing order, which within
// a pool is the order in which the scheduler tries devices.
//
// Shares come from the smallest GPU up: they fill a GPU before they touch the
// next, and the large ones stay free for the shares that fit nowhere else.
// Whole GPUs come in the opposite order, so that claims for shares and for
// whole GPUs take from opposite ends and meet only when the node is full.
// Partitions come last, in the order of places. No order depends on that of
// the offers.
//
// The errors name each GPU that is offered in fewer forms than it could be, or
// in none, and say why.
func Devices(offers []Offer) ([]gpu.Device, []error) {
	offers, problems := distinct(offers)
	var shares, wholes, partitions []gpu.Device
	for i := range offers {
		o := &offers[i]
		if o.Whole {
			wholes = append(wholes, whole(o))
		}
		slice, err := share(o)
		if err != nil {
			problems = append(problems, err)
		}
		if slice != nil {
			shares = append(shares, *slice)
		}
		partitions = slices.Concat(partitions, places(o), existing(o))
	}
	slices.Reverse(wholes)
	return slices.Concat(shares, wholes, partitions), problems
}

// distinct leaves out GPUs whose devices would have the names of others, and
// sorts the rest from the smallest up.
func distinct(offers []Offer) (kept []Offer, problems []error) {
	seen := map[string]string{}
	for _, o := range slices.SortedFunc(slices.Values(offers), compare) {
		name := wholeName(&o.GPU)
		if other, taken := seen[name]; taken {
			problems = append(problems, fmt.Errorf("GPU %s is not offered: its device would have the name of GPU %s, %q",
				o.GPU.UUID, other, name))
			continue
		}
		seen[name] = o.GPU.UUID
		kept = append(kept, o)
	}
	return kept, problems
}

func compare(a, b Offer) int {
	return cmp.Or(
		cmp.Compare(usable(&a.GPU), usable(&b.GPU)),
		cmp.Compare(a.GPU.PCIBusID, b.GPU.PCIBusID),
		cmp.Compare(a.GPU.UUID, b.GPU.UUID),
	)
}

func whole(o *Offer) gpu.Device {
	return gpu.Device{
		Pool:             o.Pool,
		Name:             wholeName(&o.GPU),
		Form:             gpu.Whole,
		GPU:              &o.GPU,
		Memory:           usable(&o.GPU),
		MemoryIsolation:  gpu.IsolationNone,
		ComputeIsolation: gpu.IsolationNone,
		MIGOnDemand:      o.MIGOnDemand,
		Withheld:         o.withheld(len(o.Occupied) > 0),
	}
}

// share is nil where the GPU is not offered in shares, has too little memory to
// share, which is an error, or none to tell.
func share(o *Offer) (*gpu.Device, error) {
	if !o.Shares || o.GPU.Memory == nil {
		return nil, nil
	}
	memory := usable(&o.GPU) - o.Reserve
	if memory < o.MemoryMin {
		return nil, fmt.Errorf("GPU %s is not offered in shares: of its usable memory, %d bytes, %d are reserved, and the smallest share is set to %d; set a smaller one",
			o.GPU.UUID, usable(&o.GPU), o.Reserve, o.MemoryMin)
	}
	return &gpu.Device{
		Pool: o.Pool,
		Name: wholeName(&o.GPU) + "-slice",
		Form: gpu.Slice,
		GPU:  &o.GPU,
		// A request for all of it must not be rounded up beyond it.
		Memory:           memory - (memory-o.MemoryMin)%o.MemoryStep,
		MemoryMin:        o.MemoryMin,
		MemoryStep:       o.MemoryStep,
		Ranks:            min(o.Ranks, gpu.MaxRanks),
		MemoryIsolation:  cmp.Or(o.Isolation, gpu.IsolationNone),
		ComputeIsolation: gpu.IsolationNone,
		MustIsolate:      o.MustIsolate,
		Evicts:           o.Evicts,
		MIGOnDemand:      o.MIGOnDemand,
		Withheld:         o.withheld(len(o.Occupied) > 0),
	}, nil
}

// withheld is the reason for a device, part of whose place is occupied or not.
func (o *Offer) withheld(occupied bool) gpu.Withheld {
	if o.Withheld == "" && occupied {
		return gpu.Occupied
	}
	return o.Withheld
}

func usable(g *gpu.GPU) int64 {
	if g.Memory == nil {
		return 0
	}
	return int64(g.Memory.Usable())
}

func wholeName(g *gpu.GPU) string {
	return "gpu-" + g.ID()
}

// PoolName is the pool of a GPU that has one of its own.
func PoolName(node string, g *gpu.GPU) string {
	return node + "/" + wholeName(g)
}
