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

package catalog

import "slices"

// Placement is a place that a GPU instance takes, or wants to take.
type Placement struct {
	// Profile is the profile's id.
	Profile int
	// Start is the first memory slice.
	Start int
}

// Fits tells whether the driver makes a GPU instance at a place when others
// exist. No instance shares memory slices with another, and what instances have
// together stays within the GPU's compute slices, its engines, and the number
// of instances that the profile allows.
func (g *Geometry) Fits(existing []Placement, wanted Placement) bool {
	profile, ok := g.ByID(wanted.Profile)
	if !ok || !slices.Contains(profile.Starts, wanted.Start) {
		return false
	}
	same, compute, engines := 1, profile.ComputeSlices, profile.Engines
	for _, other := range existing {
		p, ok := g.ByID(other.Profile)
		if !ok || wanted.Start < other.Start+p.MemorySlices && other.Start < wanted.Start+profile.MemorySlices {
			return false
		}
		if p == profile {
			same++
		}
		compute += p.ComputeSlices
		engines = engines.plus(p.Engines)
	}
	return same <= profile.Instances && compute <= g.ComputeSlices && engines.within(g.Engines())
}

// Remaining is how many more instances of a profile fit beside those that
// exist.
func (g *Geometry) Remaining(existing []Placement, id int) int {
	profile, ok := g.ByID(id)
	if !ok {
		return 0
	}
	all := slices.Clone(existing)
	for _, start := range profile.Starts {
		if wanted := (Placement{Profile: id, Start: start}); g.Fits(all, wanted) {
			all = append(all, wanted)
		}
	}
	return len(all) - len(existing)
}

// Engines is what all instances together can have. NVML does not tell; but as
// many instances of a profile fit as it says, so the GPU has the engines for
// them.
func (g *Geometry) Engines() Engines {
	var most Engines
	for i := range g.Profiles {
		p := &g.Profiles[i]
		most = Engines{
			Copy:     max(most.Copy, p.Instances*p.Engines.Copy),
			Decoders: max(most.Decoders, p.Instances*p.Engines.Decoders),
			Encoders: max(most.Encoders, p.Instances*p.Engines.Encoders),
			JPEG:     max(most.JPEG, p.Instances*p.Engines.JPEG),
			OFA:      max(most.OFA, p.Instances*p.Engines.OFA),
		}
	}
	return most
}

func (e Engines) plus(f Engines) Engines {
	return Engines{e.Copy + f.Copy, e.Decoders + f.Decoders, e.Encoders + f.Encoders, e.JPEG + f.JPEG, e.OFA + f.OFA}
}

func (e Engines) within(f Engines) bool {
	return e.Copy <= f.Copy && e.Decoders <= f.Decoders && e.Encoders <= f.Encoders && e.JPEG <= f.JPEG && e.OFA <= f.OFA
}
