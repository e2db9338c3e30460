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

	"github.com/memslice/memslice/pkg/gpu"
)

// places are the devices for every place at which an instance can be made. The
// smallest profiles come first, so that a claim that asks for "at least" gets
// no more than it needs. Among the places of one profile those come first that
// are in the way of the fewest larger instances: the scheduler takes the first
// that is free, and a small instance in the middle would spoil a GPU for large
// ones.
func places(o *Offer) []gpu.Device {
	if len(o.Profiles) == 0 {
		return nil
	}
	var devices []gpu.Device
	left := left(o.GPU.MIG, o.Occupied)
	for _, p := range slices.SortedFunc(slices.Values(o.Profiles), compareProfiles) {
		for _, place := range inOrder(p, o.Profiles) {
			d := partition(o, p, place)
			d.Withheld = o.withheld(!left.cover(needed(o.GPU.MIG, p, place)))
			devices = append(devices, d)
		}
	}
	return devices
}

func compareProfiles(a, b gpu.Profile) int {
	return cmp.Or(
		cmp.Compare(a.MemorySlices, b.MemorySlices),
		cmp.Compare(a.ComputeSlices, b.ComputeSlices),
		cmp.Compare(engines(a), engines(b)),
		cmp.Compare(a.Name, b.Name),
	)
}

func engines(p gpu.Profile) int {
	e := p.Engines
	return e.Copy + e.Decoders + e.Encoders + e.JPEG + e.OFA
}

// inOrder is the places of a profile.
func inOrder(p gpu.Profile, all []gpu.Profile) []gpu.Partition {
	inTheWay := func(place gpu.Partition) (n int) {
		for _, larger := range all {
			if larger.MemorySlices < p.MemorySlices || larger.MemorySlices == p.MemorySlices && larger.ComputeSlices <= p.ComputeSlices {
				continue
			}
			for _, start := range larger.Starts {
				if place.Overlaps(gpu.Partition{Start: start, Size: larger.MemorySlices}) {
					n++
				}
			}
		}
		return n
	}
	var places []gpu.Partition
	for _, start := range p.Starts {
		places = append(places, gpu.Partition{Profile: p.Name, Start: start, Size: p.MemorySlices})
	}
	slices.SortFunc(places, func(a, b gpu.Partition) int {
		return cmp.Or(cmp.Compare(inTheWay(a), inTheWay(b)), cmp.Compare(a.Start, b.Start))
	})
	return places
}

// existing are the devices for instances that are offered as they are.
func existing(o *Offer) []gpu.Device {
	var devices []gpu.Device
	parts := map[int]int{} // of GPU instances
	for _, i := range o.Instances {
		parts[i.GPUInstance]++
	}
	for _, i := range o.Instances {
		if i.UUID == "" {
			continue
		}
		d := partition(o, gpu.Profile{Name: i.Profile, Memory: i.Memory, Multiprocessors: i.Multiprocessors, Engines: i.Engines}, i.Partition)
		d.Existing = i.UUID
		if parts[i.GPUInstance] > 1 {
			d.Name = fmt.Sprintf("%s-%d", d.Name, i.ComputeInstance)
		}
		devices = append(devices, d)
	}
	return devices
}

func partition(o *Offer, p gpu.Profile, place gpu.Partition) gpu.Device {
	return gpu.Device{
		Pool:             o.Pool,
		Name:             fmt.Sprintf("%s-mig-%s-%d", wholeName(&o.GPU), place.Slug(), place.Start),
		Form:             gpu.MIG,
		GPU:              &o.GPU,
		Memory:           p.Memory,
		Profile:          p,
		Partition:        place,
		MemoryIsolation:  gpu.IsolationMIG,
		ComputeIsolation: gpu.IsolationMIG,
		MIGOnDemand:      o.MIGOnDemand,
		Withheld:         o.Withheld,
	}
}
