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
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/memslice/memslice/pkg/gpu"
)

// devicesPerSlice is the API's limit where any device consumes counters or has
// taints.
const devicesPerSlice = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// Resources puts devices, in their order, into the ResourceSlices of their
// pools. The pool with the node's name is always there, if only to tell a node
// without usable GPUs from one without this driver. What a device is withheld
// for becomes a taint.
func Resources(node string, devices []gpu.Device) resourceslice.DriverResources {
	byPool := map[string][]gpu.Device{node: nil}
	for _, d := range devices {
		byPool[d.Pool] = append(byPool[d.Pool], d)
	}
	pools := make(map[string]resourceslice.Pool, len(byPool))
	for name, devices := range byPool {
		pools[name] = pool(devices)
	}
	return resourceslice.DriverResources{Pools: pools}
}

// pool has counter sets in slices of their own, as the API wants it.
func pool(devices []gpu.Device) resourceslice.Pool {
	divided := map[*gpu.GPU]bool{}
	for _, d := range devices {
		if made := d.Form == gpu.MIG && d.Existing == ""; made {
			divided[d.GPU] = true
		}
	}
	var content []resourceslice.Slice
	for sets := range slices.Chunk(counterSets(devices, divided), resourceapi.ResourceSliceMaxCounterSets) {
		content = append(content, resourceslice.Slice{SharedCounters: sets})
	}
	published := make([]resourceapi.Device, 0, len(devices))
	for _, d := range devices {
		published = append(published, device(d, divided[d.GPU]))
	}
	for chunk := range slices.Chunk(published, devicesPerSlice) {
		content = append(content, resourceslice.Slice{Devices: chunk})
	}
	if len(content) == 0 {
		content = []resourceslice.Slice{{}}
	}
	return resourceslice.Pool{Slices: content}
}

// device of a GPU that is divided as claims ask, or not.
func device(d gpu.Device, divided bool) resourceapi.Device {
	out := resourceapi.Device{
		Name:       d.Name,
		Attributes: Attributes(d),
		Capacity:   capacity(d),
	}
	if d.Existing == "" {
		out.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{
			CounterSet: counterSetName(d.GPU),
			Counters:   consumed(d, divided).api(),
		}}
	}
	if d.Withheld != "" {
		out.Taints = []resourceapi.DeviceTaint{{
			Key: gpu.DriverName + "/" + string(d.Withheld), Effect: resourceapi.DeviceTaintEffectNoSchedule,
		}}
	}
	if d.Form == gpu.Slice {
		shared := true
		out.AllowMultipleAllocations = &shared
	}
	return out
}

// counterSets has one for each GPU with a device that consumes of it.
func counterSets(devices []gpu.Device, divided map[*gpu.GPU]bool) []resourceapi.CounterSet {
	var sets []resourceapi.CounterSet
	seen := map[*gpu.GPU]bool{}
	for _, d := range devices {
		if seen[d.GPU] || d.Existing != "" {
			continue
		}
		seen[d.GPU] = true
		all := undivided()
		if divided[d.GPU] {
			all = divisible(d.GPU.MIG)
			maps.Copy(all, scarce(d.GPU.MIG))
		}
		sets = append(sets, resourceapi.CounterSet{Name: counterSetName(d.GPU), Counters: all.api()})
	}
	return sets
}

func counterSetName(g *gpu.GPU) string {
	return wholeName(g)
}
