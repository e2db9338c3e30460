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
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/memslice/memslice/pkg/gpu"
)

const nodeName = "node-1"

// scheduler is the allocator of kube-scheduler with what is published for one
// node, and the claims that it has allocated.
type scheduler struct {
	features  structured.Features
	slices    []*resourceapi.ResourceSlice
	allocated map[string]resourceapi.AllocationResult // by claim
	count     int
}

// schedulers are as in Kubernetes 1.36 and 1.37, which round in different
// ways.
func schedulers(t *testing.T, run func(t *testing.T, features structured.Features)) {
	features := structured.Features{
		AdminAccess:            true,
		ConsumableCapacity:     true,
		DeviceBindingAndStatus: true,
		DeviceTaints:           true,
		PartitionableDevices:   true,
		PrioritizedList:        true,
	}
	t.Run("1.36", func(t *testing.T) { run(t, features) })
	features.FractionalCapacityRange = true
	t.Run("1.37", func(t *testing.T) { run(t, features) })
}

func newScheduler(features structured.Features, resources resourceslice.DriverResources) *scheduler {
	s := &scheduler{features: features, allocated: map[string]resourceapi.AllocationResult{}}
	for poolName, pool := range resources.Pools {
		for i, slice := range pool.Slices {
			node := nodeName
			s.slices = append(s.slices, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%04x-%s", i, poolName)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver:         gpu.DriverName,
					Pool:           resourceapi.ResourcePool{Name: poolName, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
					NodeName:       &node,
					Devices:        slice.Devices,
					SharedCounters: slice.SharedCounters,
				},
			})
		}
	}
	return s
}

// schedulerFor publishes with the default options.
func schedulerFor(features structured.Features, gpus []gpu.GPU) *scheduler {
	devices, _ := Devices(nodeName, gpus, Options{})
	return newScheduler(features, Resources(nodeName, devices, nil))
}

// allocate gives the claim's name and the results, or none where the claim
// stays pending.
func (s *scheduler) allocate(requests ...resourceapi.DeviceRequest) (string, []resourceapi.DeviceRequestAllocationResult, error) {
	s.count++
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("claim-", s.count), Namespace: "default"},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
	}
	allocator, err := structured.NewAllocator(context.Background(), s.features, s.state(), classes{}, s.slices,
		cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}))
	if err != nil {
		return "", nil, err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	results, err := allocator.Allocate(context.Background(), node, []*resourceapi.ResourceClaim{claim})
	if err != nil || len(results) == 0 {
		return "", nil, err
	}
	s.allocated[claim.Name] = results[0]
	return claim.Name, results[0].Devices.Results, nil
}

func (s *scheduler) release(claim string) { delete(s.allocated, claim) }

func (s *scheduler) state() structured.AllocatedState {
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

// mustAllocate allocates one request and gives the device and what it got.
func (s *scheduler) mustAllocate(t *testing.T, request resourceapi.DeviceRequest) (claim string, result resourceapi.DeviceRequestAllocationResult) {
	t.Helper()
	claim, results, err := s.allocate(request)
	if err != nil || len(results) != 1 {
		t.Fatalf("allocating: got %d results and error %v, want one", len(results), err)
	}
	return claim, results[0]
}

func (s *scheduler) mustStayPending(t *testing.T, request resourceapi.DeviceRequest) {
	t.Helper()
	if _, results, err := s.allocate(request); err != nil || len(results) > 0 {
		t.Fatalf("allocating: got %v and error %v, want the claim to stay pending", results, err)
	}
}

func shareRequest(capacity map[resourceapi.QualifiedName]string) resourceapi.DeviceRequest {
	return request("slice.memslice.dev", capacity)
}

func wholeRequest() resourceapi.DeviceRequest { return request("gpu.memslice.dev", nil) }

func request(class string, capacity map[resourceapi.QualifiedName]string, selectors ...string) resourceapi.DeviceRequest {
	exactly := &resourceapi.ExactDeviceRequest{
		DeviceClassName: class,
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
		Count:           1,
	}
	for name, amount := range capacity {
		if exactly.Capacity == nil {
			exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
		}
		exactly.Capacity.Requests[name] = resource.MustParse(amount)
	}
	for _, selector := range selectors {
		exactly.Selectors = append(exactly.Selectors, resourceapi.DeviceSelector{
			CEL: &resourceapi.CELDeviceSelector{Expression: selector},
		})
	}
	return resourceapi.DeviceRequest{Name: "gpu", Exactly: exactly}
}

func memory(amount string) map[resourceapi.QualifiedName]string {
	return map[resourceapi.QualifiedName]string{gpu.CapacityMemory: amount}
}

func compute(amount string) map[resourceapi.QualifiedName]string {
	return map[resourceapi.QualifiedName]string{gpu.CapacityMemory: "256Mi", gpu.CapacityCompute: amount}
}

// classes are the DeviceClasses that are installed with the driver.
type classes struct{}

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	var list []*resourceapi.DeviceClass
	for _, form := range []gpu.Form{gpu.Slice, gpu.Whole} {
		expression := fmt.Sprintf(`device.driver == %q && device.attributes[%q].type == %q`, gpu.DriverName, gpu.DriverName, form)
		list = append(list, &resourceapi.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: string(form) + ".memslice.dev"},
			Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
				{CEL: &resourceapi.CELDeviceSelector{Expression: expression}},
			}},
		})
	}
	return list, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	list, _ := c.List()
	i := slices.IndexFunc(list, func(class *resourceapi.DeviceClass) bool { return class.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("no device class %q", name)
	}
	return list[i], nil
}
