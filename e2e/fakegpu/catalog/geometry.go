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

// Profile slots, the values of NVML_GPU_INSTANCE_PROFILE_* that a caller
// enumerates. They are not the profile ids that NVML returns.
const (
	Slot1Slice     = 0x0
	Slot2Slice     = 0x1
	Slot3Slice     = 0x2
	Slot4Slice     = 0x3
	Slot7Slice     = 0x4
	Slot1SliceRev1 = 0x7
	Slot2SliceRev1 = 0x8
	Slot1SliceRev2 = 0x9
	slotCount      = 0x12
)

// ProfileSlots is NVML_GPU_INSTANCE_PROFILE_COUNT: larger slots are invalid.
const ProfileSlots = slotCount

// Geometry is how one model can be divided into GPU instances.
type Geometry struct {
	// MemorySlices and ComputeSlices are what all instances together share.
	MemorySlices, ComputeSlices int
	Profiles                    []Profile
}

// Engines are fixed-function units, of which each belongs to one instance.
type Engines struct {
	Copy, Decoders, Encoders, JPEG, OFA int
}

// Profile is one kind of GPU instance.
type Profile struct {
	// Slot is what a caller enumerates, ID what NVML calls the profile.
	Slot, ID int
	Name     string
	// ComputeSlices is NVML's slice count, MemorySlices the size of a
	// placement.
	ComputeSlices, MemorySlices int
	// Instances is how many fit on an empty GPU.
	Instances       int
	Multiprocessors int
	MemoryMiB       uint64
	Engines         Engines
	// Starts are the first memory slices of the possible placements.
	Starts []int
}

// BySlot finds the profile at an NVML_GPU_INSTANCE_PROFILE_* value.
func (g *Geometry) BySlot(slot int) (*Profile, bool) {
	return g.find(func(p Profile) bool { return p.Slot == slot })
}

// ByID finds a profile by the id that NVML reports for it.
func (g *Geometry) ByID(id int) (*Profile, bool) {
	return g.find(func(p Profile) bool { return p.ID == id })
}

func (g *Geometry) find(match func(Profile) bool) (*Profile, bool) {
	i := slices.IndexFunc(g.Profiles, match)
	if i < 0 {
		return nil, false
	}
	return &g.Profiles[i], true
}
