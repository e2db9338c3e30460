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
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/memslice/memslice/pkg/gpu"
)

// counters are amounts of what a GPU has, by name.
type counters map[string]int

func (c counters) api() map[string]resourceapi.Counter {
	out := make(map[string]resourceapi.Counter, len(c))
	for name, n := range c {
		out[name] = resourceapi.Counter{Value: *resource.NewQuantity(int64(n), resource.DecimalSI)}
	}
	return out
}

func (c counters) add(name string, n int) {
	if n > 0 {
		c[name] = n
	}
}

// undivided is all of a GPU whose forms each need the entire GPU.
func undivided() counters { return counters{"gpu": 1} }

// divisible is all of a GPU that partitions are made of: its memory slices, one
// by one, since a partition needs certain ones; its compute slices; its
// engines. NVML does not tell how many of these there are in all, but how many
// instances of a profile there can be, and what those have together is there.
func divisible(m *gpu.MultiInstance) counters {
	all := counters{}
	for _, p := range m.Profiles {
		for _, start := range p.Starts {
			all.memory(start, p.MemorySlices)
		}
		for name, n := range parts(p) {
			all.add(name, max(n*p.Count, all[name]))
		}
	}
	return all
}

// scarce are counters for the profiles of which a GPU takes fewer than it has
// places for, for a reason that NVML does not tell.
func scarce(m *gpu.MultiInstance) counters {
	c := counters{}
	for _, p := range m.Profiles {
		if p.Count < fit(p) {
			c.add(profileCounter(p.Name), p.Count)
		}
	}
	return c
}

// fit is how many instances of a profile have room beside each other.
func fit(p gpu.Profile) (n int) {
	end := 0
	for _, start := range slices.Sorted(slices.Values(p.Starts)) {
		if start >= end {
			n, end = n+1, start+p.MemorySlices
		}
	}
	return n
}

// parts is what an instance has of what can be had anywhere on the GPU.
func parts(p gpu.Profile) counters {
	c := counters{}
	c.add("compute-slices", p.ComputeSlices)
	c.add("copy-engines", p.Engines.Copy)
	c.add("decoders", p.Engines.Decoders)
	c.add("encoders", p.Engines.Encoders)
	c.add("jpeg-engines", p.Engines.JPEG)
	c.add("ofa-engines", p.Engines.OFA)
	return c
}

func (c counters) memory(start, size int) {
	for i := range size {
		c[fmt.Sprintf("memory-slice-%d", start+i)] = 1
	}
}

func profileCounter(name string) string {
	return "profile-" + gpu.Partition{Profile: name}.Slug()
}

// consumed is what a device takes of its GPU. A device that many claims share
// takes it once, with its first share.
func consumed(d gpu.Device, divided bool) counters {
	switch {
	case !divided:
		return undivided()
	case d.Form != gpu.MIG:
		return divisible(d.GPU.MIG)
	}
	return needed(d.GPU.MIG, d.Profile, d.Partition)
}

// needed is what an instance takes of its GPU.
func needed(m *gpu.MultiInstance, p gpu.Profile, place gpu.Partition) counters {
	c := parts(p)
	c.memory(place.Start, place.Size)
	name := profileCounter(p.Name)
	if _, ok := scarce(m)[name]; ok {
		c.add(name, 1)
	}
	return c
}

// left is what a GPU has beside instances at these places.
func left(m *gpu.MultiInstance, taken []gpu.Partition) counters {
	all := divisible(m)
	maps.Copy(all, scarce(m))
	for _, place := range taken {
		var p gpu.Profile
		if i := slices.IndexFunc(m.Profiles, func(p gpu.Profile) bool { return p.Name == place.Profile }); i >= 0 {
			p = m.Profiles[i]
		}
		for name, n := range needed(m, p, place) {
			all[name] -= n
		}
	}
	return all
}

// cover tells whether there is at least as much as is needed of everything.
func (c counters) cover(needed counters) bool {
	for name, n := range needed {
		if c[name] < n {
			return false
		}
	}
	return true
}
