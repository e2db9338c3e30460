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
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/memslice/memslice/pkg/gpu"
)

// devicesPerSlice is the API's limit where any device consumes counters or has
// taints.
const devicesPerSlice = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// Resources puts devices, in their order, into the ResourceSlices of one pool.
// Counter sets are in slices of their own, as the API wants it. taints are by
// the UUID of a GPU and go to every device of it.
func Resources(pool string, devices []gpu.Device, taints map[string][]resourceapi.DeviceTaint) resourceslice.DriverResources {
	var content []resourceslice.Slice
	for sets := range slices.Chunk(counterSets(devices), resourceapi.ResourceSliceMaxCounterSets) {
		content = append(content, resourceslice.Slice{SharedCounters: sets})
	}
	published := make([]resourceapi.Device, 0, len(devices))
	for _, d := range devices {
		published = append(published, device(d, taints[d.GPU.UUID]))
	}
	for chunk := range slices.Chunk(published, devicesPerSlice) {
		content = append(content, resourceslice.Slice{Devices: chunk})
	}
	if len(content) == 0 {
		// Tells a node without usable GPUs from one without this driver.
		content = []resourceslice.Slice{{}}
	}
	return resourceslice.DriverResources{
		Pools: map[string]resourceslice.Pool{pool: {Slices: content}},
	}
}

func device(d gpu.Device, taints []resourceapi.DeviceTaint) resourceapi.Device {
	out := resourceapi.Device{
		Name:       d.Name,
		Attributes: Attributes(d),
		Capacity:   capacity(d),
		// A device that many claims share consumes these once, with its first
		// share, so either form is out of reach while the other is in use.
		ConsumesCounters: []resourceapi.DeviceCounterConsumption{{
			CounterSet: counterSetName(d.GPU),
			Counters:   counters(),
		}},
		Taints: slices.Clone(taints),
	}
	if d.Form == gpu.Slice {
		shared := true
		out.AllowMultipleAllocations = &shared
	}
	return out
}

func counterSets(devices []gpu.Device) []resourceapi.CounterSet {
	var sets []resourceapi.CounterSet
	seen := map[string]bool{}
	for _, d := range devices {
		name := counterSetName(d.GPU)
		if seen[name] {
			continue
		}
		seen[name] = true
		sets = append(sets, resourceapi.CounterSet{Name: name, Counters: counters()})
	}
	return sets
}

func counterSetName(g *gpu.GPU) string {
	return wholeName(g)
}

// counters is all that a GPU has to be divided between its forms. One counter
// is enough for forms of which each needs the entire GPU.
func counters() map[string]resourceapi.Counter {
	return map[string]resourceapi.Counter{
		"gpu": {Value: *resource.NewQuantity(1, resource.DecimalSI)},
	}
}
