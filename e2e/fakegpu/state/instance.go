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
	"fmt"
	"slices"
	"strings"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
)

// GPUInstance is a MIG GPU instance.
type GPUInstance struct {
	// ID is NVML's. It tells the place, so that an instance has the ID of the
	// one that was there before.
	ID int `json:"id"`
	// Key is the instance's alone.
	Key string `json:"key"`
	// Profile is the id of the profile, Start the first memory slice.
	Profile int `json:"profile"`
	Start   int `json:"start"`
	// Compute are the compute instances in it, by ID.
	Compute []ComputeInstance `json:"computeInstances,omitempty"`
}

// Instance finds a GPU instance by its ID.
func (g *GPU) Instance(id int) (*GPUInstance, bool) {
	i := slices.IndexFunc(g.Instances, func(instance GPUInstance) bool { return instance.ID == id })
	if i < 0 {
		return nil, false
	}
	return &g.Instances[i], true
}

// CreateInstance makes a GPU instance of a profile at a memory slice.
func (g *GPU) CreateInstance(profileID, start int) (*GPUInstance, error) {
	geometry, err := g.partitionable()
	if err != nil {
		return nil, err
	}
	profile, ok := geometry.ByID(profileID)
	if !ok {
		return nil, refuse(InvalidArgument, "GPU %s has no MIG profile with id %d", g.UUID, profileID)
	}
	if !slices.Contains(profile.Starts, start) {
		return nil, refuse(InvalidArgument, "a %s instance cannot begin at memory slice %d: it can at %s",
			profile.Name, start, list(profile.Starts))
	}
	if !geometry.Fits(g.Placements(), catalog.Placement{Profile: profileID, Start: start}) {
		return nil, refuse(InsufficientResources, "a %s instance at memory slice %d of GPU %s does not fit beside %s",
			profile.Name, start, g.UUID, g.describeInstances(geometry))
	}
	instance := GPUInstance{ID: instanceID(geometry, profile, start), Key: newUUID("GI"), Profile: profileID, Start: start}
	at, _ := slices.BinarySearchFunc(g.Instances, instance, func(a, b GPUInstance) int { return cmp.Compare(a.ID, b.ID) })
	g.Instances = slices.Insert(g.Instances, at, instance)
	return &g.Instances[at], nil
}

// PlaceInstance chooses the memory slice for an instance of a profile: the last
// that fits, which is how the driver keeps room for larger ones.
func (g *GPU) PlaceInstance(profileID int) (int, error) {
	geometry, err := g.partitionable()
	if err != nil {
		return 0, err
	}
	profile, ok := geometry.ByID(profileID)
	if !ok {
		return 0, refuse(InvalidArgument, "GPU %s has no MIG profile with id %d", g.UUID, profileID)
	}
	for _, start := range slices.Backward(profile.Starts) {
		if geometry.Fits(g.Placements(), catalog.Placement{Profile: profileID, Start: start}) {
			return start, nil
		}
	}
	return 0, refuse(InsufficientResources, "no %s instance fits on GPU %s beside %s",
		profile.Name, g.UUID, g.describeInstances(geometry))
}

// DestroyInstance destroys a GPU instance that nothing is in.
func (g *GPU) DestroyInstance(id int) error {
	instance, ok := g.Instance(id)
	if !ok {
		return g.noInstance(id)
	}
	if len(instance.Compute) > 0 {
		return refuse(InUse, "GPU instance %d of GPU %s holds %d compute instances", id, g.UUID, len(instance.Compute))
	}
	g.Instances = slices.DeleteFunc(g.Instances, func(i GPUInstance) bool { return i.ID == id })
	return nil
}

// DestroyWithCompute destroys a GPU instance and the compute instances in it.
func (g *GPU) DestroyWithCompute(id int) error {
	instance, ok := g.Instance(id)
	if !ok {
		return g.noInstance(id)
	}
	for len(instance.Compute) > 0 {
		if err := g.DestroyCompute(instance, instance.Compute[0].ID); err != nil {
			return err
		}
	}
	return g.DestroyInstance(id)
}

// partitionable is the geometry of a GPU that instances can be made on.
func (g *GPU) partitionable() (*catalog.Geometry, error) {
	model, err := g.capable()
	if err != nil {
		return nil, err
	}
	if !g.MIG.Current {
		return nil, refuse(NotSupported, "GPU %s is not in MIG mode: 'fakegpu mig enable' turns it on", g.UUID)
	}
	return model.MIG, nil
}

// capable is the model of a GPU that has MIG.
func (g *GPU) capable() (*catalog.Model, error) {
	model, err := catalog.Lookup(g.Model)
	if err != nil {
		return nil, err
	}
	if model.MIG == nil {
		return nil, refuse(NotSupported, "GPU %s is a %s, which has no MIG", g.UUID, model.Name)
	}
	return model, nil
}

// Placements are where the GPU instances are.
func (g *GPU) Placements() []catalog.Placement {
	all := make([]catalog.Placement, len(g.Instances))
	for i, instance := range g.Instances {
		all[i] = catalog.Placement{Profile: instance.Profile, Start: instance.Start}
	}
	return all
}

func (g *GPU) noInstance(id int) error {
	return refuse(NotFound, "GPU %s has no GPU instance %d: 'fakegpu mig list' shows them", g.UUID, id)
}

func (g *GPU) describeInstances(geometry *catalog.Geometry) string {
	var names []string
	for _, instance := range g.Instances {
		if profile, ok := geometry.ByID(instance.Profile); ok {
			names = append(names, fmt.Sprintf("%s at %d", profile.Name, instance.Start))
		}
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// instanceID numbers places as the driver does: 0 is the whole GPU, 1 and 2 are
// its halves, 3 to 6 its quarters, and so on.
func instanceID(geometry *catalog.Geometry, profile *catalog.Profile, start int) int {
	parts := geometry.MemorySlices / profile.MemorySlices
	return parts - 1 + start/profile.MemorySlices
}

func list(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	return strings.Join(texts, ", ")
}
