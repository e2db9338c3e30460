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

package catalog_test

import (
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"
	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/catalog/gonvml"
)

// geometry is what go-nvml's definitions and the catalog both say about a
// profile.
type geometry struct {
	Slices, Instances, Multiprocessors uint32
	Placements                         []nvml.GpuInstancePlacement
}

// corrected are the profiles for which the catalog follows the real parts
// against go-nvml's mock definitions. Those take 3g and 7g to have as many
// memory slices as compute slices, give 1g of double memory one slice, and
// count SMs as slices times those of a 1g.
var corrected = map[string][]int{
	"h100-sxm5-80gb":  {catalog.Slot1SliceRev2, catalog.Slot3Slice, catalog.Slot7Slice},
	"h200-sxm5-141gb": {catalog.Slot1SliceRev2, catalog.Slot3Slice, catalog.Slot7Slice},
	"b200-sxm6-180gb": {catalog.Slot1SliceRev2, catalog.Slot3Slice, catalog.Slot7Slice},
}

func TestGeometryAgainstGoNVML(t *testing.T) {
	for key, theirs := range gonvml.Configs() {
		t.Run(key, func(t *testing.T) {
			ours, err := catalog.Lookup(key)
			if err != nil {
				t.Fatal(err)
			}
			if got := nvml.DeviceArchitecture(ours.Architecture); got != theirs.Architecture {
				t.Errorf("architecture %d, go-nvml has %d", got, theirs.Architecture)
			}
			if ours.ComputeMajor != theirs.CudaMajor || ours.ComputeMinor != theirs.CudaMinor || nvml.BrandType(ours.Brand) != theirs.Brand {
				t.Errorf("capability %d.%d and brand %d, go-nvml has %d.%d and %d", ours.ComputeMajor, ours.ComputeMinor,
					ours.Brand, theirs.CudaMajor, theirs.CudaMinor, theirs.Brand)
			}
			for slot := range catalog.ProfileSlots {
				compareProfile(t, ours, theirs.MIGProfiles, slot)
			}
		})
	}
}

func compareProfile(t *testing.T, ours *catalog.Model, theirs gpus.MIGProfileConfig, slot int) {
	profile, have := ours.MIG.BySlot(slot)
	info, want := theirs.GpuInstanceProfiles[slot]
	if have != want {
		t.Errorf("profile %d: present %t, in go-nvml %t", slot, have, want)
	}
	if !have || !want {
		return
	}
	mine := geometry{
		Slices: uint32(profile.ComputeSlices), Instances: uint32(profile.Instances), Multiprocessors: uint32(profile.Multiprocessors),
	}
	for _, start := range profile.Starts {
		mine.Placements = append(mine.Placements, nvml.GpuInstancePlacement{Start: uint32(start), Size: uint32(profile.MemorySlices)})
	}
	diff := cmp.Diff(geometry{info.SliceCount, info.InstanceCount, info.MultiprocessorCount, theirs.GpuInstancePlacements[slot]}, mine)
	if known := slices.Contains(corrected[ours.Key], slot); known != (diff != "") {
		t.Errorf("profile %d (%s): a difference is known: %t; difference (-go-nvml +catalog):\n%s", slot, profile.Name, known, diff)
	}
}
