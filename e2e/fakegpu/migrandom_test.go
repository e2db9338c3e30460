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

package fakegpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// TestRandomPartitions makes and destroys partitions at random, of every model
// that has MIG: NVML makes exactly what fits, and lists exactly what was made.
func TestRandomPartitions(t *testing.T) {
	for _, key := range catalog.ModelKeys() {
		model, err := catalog.Lookup(key)
		if err != nil {
			t.Fatal(err)
		}
		if model.MIG == nil {
			continue
		}
		t.Run(key, func(t *testing.T) {
			fakegputest.Isolate(t, func(t *testing.T) {
				driver := fakegputest.New(t, "t4")
				driver.UpdateGPU(t, "0", func(gpu *state.GPU) {
					gpu.Model, gpu.MIG = key, state.MIGMode{Current: true, Pending: true}
				})
				gpu := get[nvml.Device](t)(load(t, driver).DeviceGetHandleByIndex(0))
				randomPartitions(t, gpu, model.MIG)
			})
		})
	}
}

func randomPartitions(t *testing.T, gpu nvml.Device, geometry *catalog.Geometry) {
	random := rand.New(rand.NewPCG(1, 2))
	var places []catalog.Placement
	var parts []partition
	uuids := map[string]bool{}
	for range 150 {
		if len(parts) > 0 && random.IntN(3) == 0 {
			i := random.IntN(len(parts))
			parts[i].destroy(t)
			places, parts = slices.Delete(places, i, i+1), slices.Delete(parts, i, i+1)
			checkPartitions(t, gpu, geometry, places, parts)
			continue
		}
		profile := geometry.Profiles[random.IntN(len(geometry.Profiles))]
		wanted := catalog.Placement{Profile: profile.ID, Start: profile.Starts[random.IntN(len(profile.Starts))]}
		instance, result := gpu.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: uint32(profile.ID)},
			&nvml.GpuInstancePlacement{Start: uint32(wanted.Start), Size: uint32(profile.MemorySlices)})
		switch fits := geometry.Fits(places, wanted); {
		case fits && result == nvml.SUCCESS:
			p := fullyUsed(t, gpu, instance)
			if uuids[p.uuid] {
				t.Fatalf("%s is not new", p.uuid)
			}
			uuids[p.uuid] = true
			places, parts = append(places, wanted), append(parts, p)
		case fits || result != nvml.ERROR_INSUFFICIENT_RESOURCES:
			t.Fatalf("making %s at %d beside %+v = %v, fits: %t", profile.Name, wanted.Start, places, result, fits)
		}
		checkPartitions(t, gpu, geometry, places, parts)
	}
	if len(uuids) < 20 {
		t.Errorf("only %d partitions were made", len(uuids))
	}
}

// checkPartitions compares what NVML lists with what was made.
func checkPartitions(t *testing.T, gpu nvml.Device, geometry *catalog.Geometry, places []catalog.Placement, parts []partition) {
	t.Helper()
	left := map[string]bool{}
	for _, p := range parts {
		left[p.uuid] = true
	}
	for index := range parts {
		uuid := get[string](t)(get[nvml.Device](t)(gpu.GetMigDeviceHandleByIndex(index)).GetUUID())
		if !left[uuid] {
			t.Fatalf("MIG device %s was not made, or is there twice", uuid)
		}
		delete(left, uuid)
	}
	if max := get[int](t)(gpu.GetMaxMigDeviceCount()); len(parts) < max {
		if _, result := gpu.GetMigDeviceHandleByIndex(len(parts)); result != nvml.ERROR_NOT_FOUND {
			t.Fatalf("a MIG device more than were made: %v", result)
		}
	}
	var listed []catalog.Placement
	for _, profile := range geometry.Profiles {
		info := nvml.GpuInstanceProfileInfo{Id: uint32(profile.ID), InstanceCount: uint32(profile.Instances)}
		for _, instance := range get[[]nvml.GpuInstance](t)(gpu.GetGpuInstances(&info)) {
			placed := get[nvml.GpuInstanceInfo](t)(instance.GetInfo())
			listed = append(listed, catalog.Placement{Profile: int(placed.ProfileId), Start: int(placed.Placement.Start)})
		}
		if got, want := get[int](t)(gpu.GetGpuInstanceRemainingCapacity(&info)), geometry.Remaining(places, profile.ID); got != want {
			t.Fatalf("room for %d of %s, want %d", got, profile.Name, want)
		}
	}
	if len(listed) != len(places) {
		t.Fatalf("GPU instances %+v, want %+v", listed, places)
	}
	for _, place := range places {
		if !slices.Contains(listed, place) {
			t.Fatalf("GPU instances %+v, want %+v", listed, places)
		}
	}
}
