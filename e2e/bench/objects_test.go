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

package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Each kind of claim gets from each layout what it is meant to.
func TestClaimsMatchLayouts(t *testing.T) {
	want := map[claimKind]string{
		share:     `^gpu gpu-[0-9a-f]{8}-[0-9a-f]{4}-slice$`,
		spread:    `^gpu/rank1 gpu-[0-9a-f]{8}-[0-9a-f]{4}-slice$`,
		whole:     `^gpu gpu-[0-9a-f]{8}-[0-9a-f]{4}$`,
		partition: `^gpu gpu-[0-9a-f]{8}-[0-9a-f]{4}-mig-1g-10gb-[0-9]$`,
	}
	for _, p := range publications() {
		for _, kind := range p.claims {
			t.Run(p.name+", "+string(kind), func(t *testing.T) {
				got := allocate(t, example(t, p), claim("claim", kind), nil)
				if matches, err := regexp.MatchString(want[kind], got); err != nil || !matches {
					t.Errorf("got %q, want %s", got, want[kind])
				}
			})
		}
	}
}

// With all GPUs but the last full, each claim gets something of that one, and
// with all full nothing.
func TestFull(t *testing.T) {
	machines, err := fleet(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range publications() {
		for _, kind := range p.claims {
			t.Run(p.name+", "+string(kind), func(t *testing.T) {
				published := example(t, p)
				got := allocate(t, published, claim("claim", kind), full(machines[0].name, published, 0, gpusPerNode-1))
				if last := lastGPU(published); !strings.Contains(got, last) {
					t.Errorf("got %q, want something of %s", got, last)
				}
				got = allocate(t, published, claim("claim", kind), full(machines[0].name, published, 0, gpusPerNode))
				if got != "nothing" {
					t.Errorf("got %q of full GPUs", got)
				}
			})
		}
	}
}

// lastGPU is the one whose share is tried last.
func lastGPU(published []*resourceapi.ResourceSlice) (name string) {
	for _, slice := range published {
		for _, device := range slice.Spec.Devices {
			if gpu, isShare := strings.CutSuffix(device.Name, "-slice"); isShare {
				name = gpu
			}
		}
	}
	return name
}

func TestFullHasARangeOfGPUs(t *testing.T) {
	held := full("n", example(t, publications()[0]), 2, 5)
	var got []string
	for i, result := range held.Status.Allocation.Devices.Results {
		got = append(got, result.Device)
		if request := held.Spec.Devices.Requests[i].Name; request != result.Request {
			t.Errorf("result %d is for request %q, want %q", i, result.Request, request)
		}
	}
	want := []string{"gpu-00000000-0002-slice", "gpu-00000000-0003-slice", "gpu-00000000-0004-slice"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// allocate returns the request and the device that the scheduler's allocator
// chooses.
func allocate(t *testing.T, published []*resourceapi.ResourceSlice, claim, allocated *resourceapi.ResourceClaim) string {
	t.Helper()
	// As the API server does.
	request := &claim.Spec.Devices.Requests[0]
	if request.Exactly != nil {
		request.Exactly.AllocationMode, request.Exactly.Count = resourceapi.DeviceAllocationModeExactCount, 1
	}
	for i := range request.FirstAvailable {
		request.FirstAvailable[i].AllocationMode, request.FirstAvailable[i].Count = resourceapi.DeviceAllocationModeExactCount, 1
	}
	allocator, err := structured.NewAllocator(context.Background(),
		structured.Features{ConsumableCapacity: true, PartitionableDevices: true, PrioritizedList: true}, state(allocated), classes{}, published, cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}))
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: *published[0].Spec.NodeName}}
	results, err := allocator.Allocate(context.Background(), node, []*resourceapi.ResourceClaim{claim})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		return "nothing"
	}
	result := results[0].Devices.Results[0]
	return result.Request + " " + result.Device
}

// state is that of the scheduler with one allocated claim, or none.
func state(allocated *resourceapi.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	if allocated == nil {
		return state
	}
	for _, result := range allocated.Status.Allocation.Devices.Results {
		id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
	}
	return state
}

// classes select by type, as those of the chart do.
type classes struct{}

func (classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

func (classes) Get(name string) (*resourceapi.DeviceClass, error) {
	form, _, _ := strings.Cut(name, ".")
	expression := fmt.Sprintf(`device.attributes["gpu.memslice.dev"].type == %q`, form)
	return &resourceapi.DeviceClass{Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
		{CEL: &resourceapi.CELDeviceSelector{Expression: expression}},
	}}}, nil
}

// A pod uses its claim, by the names that both have.
func TestPodUsesItsClaim(t *testing.T) {
	p, c := pod("pod-0001"), claim("pod-0001", share)
	if got := *p.Spec.ResourceClaims[0].ResourceClaimName; got != c.Name {
		t.Errorf("the pod uses claim %q, want %q", got, c.Name)
	}
	if got := p.Spec.Containers[0].Resources.Claims[0].Name; got != p.Spec.ResourceClaims[0].Name {
		t.Errorf("the container uses %q, which the pod has not", got)
	}
}
