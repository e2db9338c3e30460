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

package state

import (
	"cmp"
	"slices"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
)

// ComputeInstance is a MIG compute instance, which NVML calls a MIG device.
type ComputeInstance struct {
	ID      int    `json:"id"`
	UUID    string `json:"uuid"`
	Profile int    `json:"profile"`
	// Start is the first compute slice within the GPU instance.
	Start int `json:"start"`
}

// MIGDevice is a compute instance with what it is in.
type MIGDevice struct {
	GPU      *GPU
	Instance *GPUInstance
	Compute  *ComputeInstance
}

// MIGDevices lists the GPU's compute instances, so that a device's place in the
// result is its NVML index.
func (g *GPU) MIGDevices() []MIGDevice {
	var all []MIGDevice
	for i := range g.Instances {
		instance := &g.Instances[i]
		for j := range instance.Compute {
			all = append(all, MIGDevice{g, instance, &instance.Compute[j]})
		}
	}
	return all
}

// Find finds a compute instance by its ID.
func (i *GPUInstance) Find(id int) (*ComputeInstance, bool) {
	n := slices.IndexFunc(i.Compute, func(compute ComputeInstance) bool { return compute.ID == id })
	if n < 0 {
		return nil, false
	}
	return &i.Compute[n], true
}

// CreateCompute makes a compute instance in a GPU instance.
func (g *GPU) CreateCompute(instance *GPUInstance, profileID int) (*ComputeInstance, error) {
	geometry, err := g.partitionable()
	if err != nil {
		return nil, err
	}
	profile, err := g.profileOf(geometry, instance)
	if err != nil {
		return nil, err
	}
	wanted, ok := geometry.Compute(profile, profileID)
	if !ok {
		return nil, refuse(NotSupported, "a %s instance has no compute instance profile %d", profile.Name, profileID)
	}
	start, ok := instance.freeSlices(geometry, profile, wanted.Slices)
	if !ok {
		return nil, refuse(InsufficientResources, "no compute instance %s fits into GPU instance %d of GPU %s",
			wanted.Name, instance.ID, g.UUID)
	}
	compute := ComputeInstance{UUID: newUUID("MIG"), Profile: profileID, Start: start}
	for slices.ContainsFunc(instance.Compute, func(c ComputeInstance) bool { return c.ID == compute.ID }) {
		compute.ID++
	}
	at, _ := slices.BinarySearchFunc(instance.Compute, compute, func(a, b ComputeInstance) int { return cmp.Compare(a.ID, b.ID) })
	instance.Compute = slices.Insert(instance.Compute, at, compute)
	return &instance.Compute[at], nil
}

// DestroyCompute destroys a compute instance that no process runs in.
func (g *GPU) DestroyCompute(instance *GPUInstance, id int) error {
	compute, ok := instance.Find(id)
	if !ok {
		return refuse(NotFound, "GPU instance %d of GPU %s has no compute instance %d", instance.ID, g.UUID, id)
	}
	if busy := g.ProcessesIn(compute.UUID); len(busy) > 0 {
		return refuse(InUse, "%s is used by %s", compute.UUID, describeProcesses(busy))
	}
	instance.Compute = slices.DeleteFunc(instance.Compute, func(c ComputeInstance) bool { return c.ID == id })
	return nil
}

// CreateFullCompute makes a compute instance of all of a GPU instance.
func (g *GPU) CreateFullCompute(instance *GPUInstance) (*ComputeInstance, error) {
	geometry, err := g.partitionable()
	if err != nil {
		return nil, err
	}
	profile, err := g.profileOf(geometry, instance)
	if err != nil {
		return nil, err
	}
	profiles := geometry.ComputeProfiles(profile)
	return g.CreateCompute(instance, profiles[len(profiles)-1].ID)
}

// freeSlices finds room for that many compute slices in a row.
func (i *GPUInstance) freeSlices(geometry *catalog.Geometry, profile *catalog.Profile, count int) (int, bool) {
	taken := make([]bool, profile.ComputeSlices)
	for _, compute := range i.Compute {
		existing, _ := geometry.Compute(profile, compute.Profile)
		for slice := range existing.Slices {
			taken[compute.Start+slice] = true
		}
	}
	for start := 0; start+count <= len(taken); start++ {
		if !slices.Contains(taken[start:start+count], true) {
			return start, true
		}
	}
	return 0, false
}

func (g *GPU) profileOf(geometry *catalog.Geometry, instance *GPUInstance) (*catalog.Profile, error) {
	profile, ok := geometry.ByID(instance.Profile)
	if !ok {
		return nil, refuse(Unknown, "GPU instance %d of GPU %s has profile %d, which its model lacks", instance.ID, g.UUID, instance.Profile)
	}
	return profile, nil
}
