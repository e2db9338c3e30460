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

// Package schedulertest answers what kube-scheduler would make of ResourceSlices:
// it is the scheduler's own allocator, on nodes that exist in memory only. It
// knows what DeviceClasses the chart installs, and nothing of how the slices
// came to be.
package schedulertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/memslice/memslice/pkg/gpu"
)

// Scheduler is the allocator of kube-scheduler with what is published for its
// nodes, and the claims that it has allocated.
type Scheduler struct {
	// Slices are what is published. They may be changed between two claims.
	Slices []*resourceapi.ResourceSlice

	nodes     []*corev1.Node
	features  structured.Features
	allocated map[string]resourceapi.AllocationResult // by claim
	count     *int
	classes   classes
	cache     *cel.Cache
}

// Versions runs a test with the allocator as in Kubernetes 1.36 and as in 1.37,
// which round in different ways.
func Versions(t *testing.T, run func(t *testing.T, features structured.Features)) {
	t.Run("1.36", func(t *testing.T) { run(t, features(false)) })
	t.Run("1.37", func(t *testing.T) { run(t, Latest()) })
}

// Latest is the allocator of Kubernetes 1.37.
func Latest() structured.Features { return features(true) }

func features(fractional bool) structured.Features {
	return structured.Features{
		AdminAccess:             true,
		ConsumableCapacity:      true,
		DeviceBindingAndStatus:  true,
		DeviceTaints:            true,
		PartitionableDevices:    true,
		PrioritizedList:         true,
		FractionalCapacityRange: fractional,
	}
}

// New is the scheduler of a cluster of one node, with what is published for it.
func New(features structured.Features, node string, resources resourceslice.DriverResources) *Scheduler {
	s := &Scheduler{
		features: features, count: new(int), allocated: map[string]resourceapi.AllocationResult{}, classes: newClasses(),
		cache: cel.NewCache(1000, cel.Features{EnableConsumableCapacity: true}),
	}
	s.Join(node, resources)
	return s
}

// Join adds a node with what is published for it.
func (s *Scheduler) Join(node string, resources resourceslice.DriverResources) {
	s.nodes = append(s.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	for _, name := range slices.Sorted(maps.Keys(resources.Pools)) {
		pool := resources.Pools[name]
		for i, slice := range pool.Slices {
			s.Slices = append(s.Slices, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%04x-%s", i, name)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver:         gpu.DriverName,
					Pool:           resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
					NodeName:       &node,
					Devices:        slice.Devices,
					SharedCounters: slice.SharedCounters,
				},
			})
		}
	}
}

// Allocate gives the claim's name and the results, or none where the claim
// stays pending. Of the nodes on which the claim fits it takes the one with the
// best score, and of several such the one that joined first.
func (s *Scheduler) Allocate(requests ...resourceapi.DeviceRequest) (string, []resourceapi.DeviceRequestAllocationResult, error) {
	*s.count++
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("claim-", *s.count), Namespace: "default"},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
	}
	allocator, err := structured.NewAllocator(context.Background(), s.features, s.state(), s.classes, s.Slices, s.cache)
	if err != nil {
		return "", nil, err
	}
	best := -1
	for _, node := range s.nodes {
		results, err := allocator.Allocate(context.Background(), node, []*resourceapi.ResourceClaim{claim})
		if err != nil {
			return "", nil, fmt.Errorf("node %s: %w", node.Name, err)
		}
		if len(results) == 0 {
			continue
		}
		if score := score(requests, results[0]); score > best {
			best, s.allocated[claim.Name] = score, results[0]
		}
	}
	if best < 0 {
		return "", nil, nil
	}
	return claim.Name, s.allocated[claim.Name].Devices.Results, nil
}

// score is what kube-scheduler gives a node for an allocation there: the earlier
// an alternative is in its list, the more.
func score(requests []resourceapi.DeviceRequest, allocation resourceapi.AllocationResult) (n int) {
	for _, r := range requests {
		for i, alternative := range r.FirstAvailable {
			chosen := resourceclaim.CreateSubRequestRef(r.Name, alternative.Name)
			if slices.ContainsFunc(allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Request == chosen }) {
				n += resourceapi.FirstAvailableDeviceRequestMaxSize - i
			}
		}
	}
	return n
}

// Asked is a scheduler with the same claims that sees no device but those of
// these names and those in use. It answers the same questions about them, faster.
func (s *Scheduler) Asked(about ...string) *Scheduler {
	few := *s
	few.Slices = nil
	visible := sets.New(about...)
	for _, allocation := range s.allocated {
		for _, r := range allocation.Devices.Results {
			visible.Insert(r.Device)
		}
	}
	for _, slice := range s.Slices {
		part := *slice
		part.Spec.Devices = nil
		for i := range slice.Spec.Devices {
			if visible.Has(slice.Spec.Devices[i].Name) {
				part.Spec.Devices = append(part.Spec.Devices, slice.Spec.Devices[i])
			}
		}
		few.Slices = append(few.Slices, &part)
	}
	return &few
}

// Release forgets a claim.
func (s *Scheduler) Release(claim string) { delete(s.allocated, claim) }

func (s *Scheduler) state() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, allocation := range s.allocated {
		for _, r := range allocation.Devices.Results {
			id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			if r.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		}
	}
	return state
}

// MustAllocate allocates one request and gives the device and what it got.
func (s *Scheduler) MustAllocate(t *testing.T, request resourceapi.DeviceRequest) (claim string, result resourceapi.DeviceRequestAllocationResult) {
	t.Helper()
	claim, results, err := s.Allocate(request)
	if err != nil || len(results) != 1 {
		t.Fatalf("allocating: got %d results and error %v, want one", len(results), err)
	}
	return claim, results[0]
}

// MustStayPending fails where a request is allocated.
func (s *Scheduler) MustStayPending(t *testing.T, request resourceapi.DeviceRequest) {
	t.Helper()
	if _, results, err := s.Allocate(request); err != nil || len(results) > 0 {
		t.Fatalf("allocating: got %v and error %v, want the claim to stay pending", results, err)
	}
}
