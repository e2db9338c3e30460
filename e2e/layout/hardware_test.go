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
	"testing"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
)

const (
	node = "node-1"
	mi   = int64(1) << 20
	gi   = int64(1) << 30
)

// geometry is how the catalog's model of this key can be divided.
func geometry(t *testing.T, key string) *catalog.Geometry {
	t.Helper()
	model, err := catalog.Lookup(key)
	if err != nil {
		t.Fatal(err)
	}
	return model.MIG
}

// placements are all the places of a geometry.
func placements(g *catalog.Geometry) (all []catalog.Placement) {
	for _, p := range g.Profiles {
		for _, start := range p.Starts {
			all = append(all, catalog.Placement{Profile: p.ID, Start: start})
		}
	}
	return all
}

// partition is a placement as the model has it.
func partition(g *catalog.Geometry, place catalog.Placement) gpu.Partition {
	p, _ := g.ByID(place.Profile)
	return gpu.Partition{Profile: p.Name, Start: place.Start, Size: p.MemorySlices}
}

// profiles are what the driver tells of a geometry.
func profiles(g *catalog.Geometry) []gpu.Profile {
	var all []gpu.Profile
	for _, p := range g.Profiles {
		all = append(all, gpu.Profile{
			Name: p.Name, ID: p.ID, MemorySlices: p.MemorySlices, ComputeSlices: p.ComputeSlices, Count: p.Instances,
			Memory: int64(p.MemoryMiB) * mi, Multiprocessors: p.Multiprocessors, Engines: gpu.Engines(p.Engines), Starts: p.Starts,
		})
	}
	return all
}

// card is GPU number n of the node, which can be divided as g says, or not at
// all where g is nil.
func card(n int, memory int64, g *catalog.Geometry) gpu.GPU {
	out := gpu.GPU{
		UUID:     fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", n),
		PCIBusID: fmt.Sprintf("0000:%02x:00.0", n),
		Memory:   &gpu.Memory{Total: uint64(memory)},
	}
	if g != nil {
		out.MIG = &gpu.MultiInstance{Profiles: profiles(g)}
	}
	return out
}

// everyForm offers a GPU in shares, whole and in partitions.
func everyForm(g gpu.GPU) publish.Offer {
	o := publish.Offer{GPU: g, Pool: node, Shares: true, Whole: true, MemoryMin: 256 * mi, MemoryStep: mi}
	if g.MIG != nil {
		o.Pool, o.Profiles, o.MIGOnDemand = publish.PoolName(node, &g), g.MIG.Profiles, true
	}
	return o
}
