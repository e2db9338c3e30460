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

import "fmt"

// ComputeProfile is one kind of compute instance in a GPU instance.
type ComputeProfile struct {
	// ID is NVML's, which is also the NVML_COMPUTE_INSTANCE_PROFILE_* value.
	ID   int
	Name string
	// Slices is how many of the GPU instance's compute slices it takes,
	// Instances how many fit in an empty GPU instance.
	Slices, Instances int
	Multiprocessors   int
}

// ComputeProfileSlots is NVML_COMPUTE_INSTANCE_PROFILE_COUNT: larger slots are
// invalid.
const ComputeProfileSlots = 0x9

// computeSizes are the compute slices of profiles 0 and up.
var computeSizes = []int{1, 2, 3, 4, 7}

// ComputeProfiles lists what a GPU instance of the profile can be divided into,
// as `nvidia-smi mig -lcip` does. The last one is all of it.
func (g *Geometry) ComputeProfiles(p *Profile) []ComputeProfile {
	var all []ComputeProfile
	for id, size := range computeSizes {
		// Four slices are not divided into three and one.
		if size > p.ComputeSlices || size == 3 && p.ComputeSlices == 4 {
			continue
		}
		c := ComputeProfile{
			ID: id, Slices: size, Instances: p.ComputeSlices / size,
			Name: fmt.Sprintf("%dc.%s", size, p.Name), Multiprocessors: size * g.multiprocessorsPerSlice(),
		}
		if size == p.ComputeSlices {
			c.Name, c.Multiprocessors = p.Name, p.Multiprocessors
		}
		all = append(all, c)
	}
	return all
}

// multiprocessorsPerSlice is what the smallest instance has.
func (g *Geometry) multiprocessorsPerSlice() int {
	least := 0
	for i := range g.Profiles {
		if n := g.Profiles[i].Multiprocessors; least == 0 || n < least {
			least = n
		}
	}
	return least
}

// Compute finds a compute instance profile of a GPU instance's profile.
func (g *Geometry) Compute(p *Profile, id int) (ComputeProfile, bool) {
	for _, c := range g.ComputeProfiles(p) {
		if c.ID == id {
			return c, true
		}
	}
	return ComputeProfile{}, false
}
