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

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/memslice/memslice/pkg/gpu"
)

// Options say how a node offers its GPUs. A value of zero means the default.
type Options struct {
	MemoryMin  int64 // the smallest share of memory, in bytes; 256Mi by default
	MemoryStep int64 // by which shares grow, in bytes; 1Mi by default
}

func (o Options) withDefaults() Options {
	return Options{
		MemoryMin:  cmp.Or(max(o.MemoryMin, 0), 256<<20),
		MemoryStep: cmp.Or(max(o.MemoryStep, 0), 1<<20),
	}
}

// Devices lists the forms in which each GPU is offered, in publishing order,
// which is the order in which the scheduler tries them.
//
// Shares come from the smallest GPU up: they fill a GPU before they touch the
// next, and the large ones stay free for the shares that fit nowhere else.
// Whole GPUs come in the opposite order, so that claims for shares and for
// whole GPUs take from opposite ends and meet only when the node is full.
// Neither order depends on the order of gpus.
//
// The errors name each GPU that is offered in fewer forms than it could be, or
// in none, and say why.
func Devices(pool string, gpus []gpu.GPU, o Options) ([]gpu.Device, []error) {
	o = o.withDefaults()
	offered, problems := offerable(gpus)

	var shares, wholes []gpu.Device
	for _, g := range offered {
		wholes = append(wholes, whole(pool, g))
		slice, err := share(pool, g, o)
		if err != nil {
			problems = append(problems, err)
		}
		if slice != nil {
			shares = append(shares, *slice)
		}
	}
	slices.Reverse(wholes)
	return append(shares, wholes...), problems
}

// offerable picks the GPUs that can be offered, from the smallest up.
func offerable(gpus []gpu.GPU) (offered []*gpu.GPU, problems []error) {
	seen := map[string]string{}
	for _, g := range slices.SortedFunc(slices.Values(gpus), compare) {
		name := wholeName(&g)
		if other, taken := seen[name]; taken {
			problems = append(problems, fmt.Errorf("GPU %s is not offered: its device would have the name of GPU %s, %q",
				g.UUID, other, name))
			continue
		}
		seen[name] = g.UUID
		if g.MIGEnabled {
			problems = append(problems, fmt.Errorf("GPU %s is not offered: in MIG mode it has neither shares nor the whole GPU to give; turn MIG mode off (nvidia-smi -i %s -mig 0)",
				g.UUID, g.UUID))
			continue
		}
		offered = append(offered, &g)
	}
	return offered, problems
}

func compare(a, b gpu.GPU) int {
	return cmp.Or(
		cmp.Compare(usable(&a), usable(&b)),
		cmp.Compare(a.PCIBusID, b.PCIBusID),
		cmp.Compare(a.UUID, b.UUID),
	)
}

func whole(pool string, g *gpu.GPU) gpu.Device {
	return gpu.Device{
		Pool:             pool,
		Name:             wholeName(g),
		Form:             gpu.Whole,
		GPU:              g,
		Memory:           usable(g),
		MemoryIsolation:  gpu.IsolationNone,
		ComputeIsolation: gpu.IsolationNone,
	}
}

// share is nil where the GPU has too little memory to share, which is an
// error, or none to tell.
func share(pool string, g *gpu.GPU, o Options) (*gpu.Device, error) {
	if g.Memory == nil {
		return nil, nil
	}
	memory := usable(g)
	if memory < o.MemoryMin {
		return nil, fmt.Errorf("GPU %s is offered as a whole only: it has %d bytes of usable memory, and the smallest share is set to %d; set a smaller one",
			g.UUID, memory, o.MemoryMin)
	}
	return &gpu.Device{
		Pool: pool,
		Name: wholeName(g) + "-slice",
		Form: gpu.Slice,
		GPU:  g,
		// A request for all of it must not be rounded up beyond it.
		Memory:           memory - (memory-o.MemoryMin)%o.MemoryStep,
		MemoryMin:        o.MemoryMin,
		MemoryStep:       o.MemoryStep,
		MemoryIsolation:  gpu.IsolationNone,
		ComputeIsolation: gpu.IsolationNone,
	}, nil
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

func bytes(n int64) *resource.Quantity {
	return resource.NewQuantity(n, resource.BinarySI)
}
