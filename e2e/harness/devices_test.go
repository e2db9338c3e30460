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

package harness

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

func newSlice(name string, generation int64, devices ...resourceapi.Device) resourceapi.ResourceSlice {
	return resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceSliceSpec{Pool: resourceapi.ResourcePool{Name: "node", Generation: generation}, Devices: devices},
	}
}

func newDevice(name, form, uuid, memory string) resourceapi.Device {
	return resourceapi.Device{
		Name: name,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"type": {StringValue: &form}, "uuid": {StringValue: &uuid}, "parentUUID": {StringValue: &uuid}, "profile": {StringValue: ptr.To("none")},
		},
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}},
	}
}

func TestDevicesAreTheLatestInOrder(t *testing.T) {
	tainted := newDevice("c", "gpu", "GPU-1", "1Gi")
	tainted.Taints = []resourceapi.DeviceTaint{{Key: DriverName + "/draining"}, {Key: "example.com/other"}}
	got := devicesOf([]resourceapi.ResourceSlice{
		newSlice("2-second", 7, tainted),
		newSlice("1-first", 7, newDevice("b", "slice", "GPU-1", "1Gi"), newDevice("a", "slice", "GPU-0", "2Gi")),
		newSlice("0-outdated", 6, newDevice("gone", "gpu", "GPU-9", "9Gi")),
	})
	want := []Device{
		{Pool: "node", Name: "b", Type: "slice", UUID: "GPU-1", GPU: "GPU-1", Profile: "none", Memory: 1 << 30},
		{Pool: "node", Name: "a", Type: "slice", UUID: "GPU-0", GPU: "GPU-0", Profile: "none", Memory: 2 << 30},
		{Pool: "node", Name: "c", Type: "gpu", UUID: "GPU-1", GPU: "GPU-1", Profile: "none", Memory: 1 << 30, Taints: "draining example.com/other"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices differ (-want +got):\n%s", diff)
	}
}

func TestGrants(t *testing.T) {
	share := Device{Pool: "node", Name: "gpu-0-slice", UUID: "GPU-0", Memory: 80 << 30}
	whole := Device{Pool: "node", Name: "gpu-1", UUID: "GPU-1", Memory: 80 << 30}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim"}}
	if grants, err := grantsOf(claim, nil); grants != nil || err != nil {
		t.Errorf("a claim that is not allocated: got %+v, %v", grants, err)
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{
			Request: "a/small", Driver: DriverName, Pool: "node", Device: "gpu-0-slice", ShareID: ptr.To(types.UID("share")), AdminAccess: ptr.To(true),
			ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("4Gi")},
		},
		{Request: "nic", Driver: "nic.example.com", Pool: "node", Device: "nic-0"},
		{Request: "b", Driver: DriverName, Pool: "node", Device: "gpu-1"},
	}}}
	got, err := grantsOf(claim, []Device{share, whole})
	if err != nil {
		t.Fatal(err)
	}
	want := []Grant{
		{Claim: "claim", Request: "a/small", ShareID: "share", Admin: true, Memory: 4 << 30, Device: share},
		{Claim: "claim", Request: "b", Memory: 80 << 30, Device: whole},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("grants differ (-want +got):\n%s", diff)
	}
	if _, err := grantsOf(claim, []Device{share}); err == nil || !strings.Contains(err.Error(), "default/claim is allocated node/gpu-1, which is not published") {
		t.Errorf("a device that is not published: got %v", err)
	}
}

func TestHasAll(t *testing.T) {
	for name, tc := range map[string]struct {
		words []string
		want  bool
	}{
		"every word":   {[]string{"GPU-1", "reset"}, true},
		"a word lacks": {[]string{"GPU-1", "process"}, false},
		"no words":     {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hasAll("GPU-1 needs a reset", tc.words); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestSameGPUs(t *testing.T) {
	two := &state.State{Preset: "h100x8", GPUs: make([]state.GPU, 2)}
	eight := &state.State{Preset: "h100x8", GPUs: make([]state.GPU, 8)}
	for name, tc := range map[string]struct {
		state  *state.State
		preset string
		count  int
		want   bool
	}{
		"the preset":                 {eight, "h100x8", 0, true},
		"another":                    {eight, "a100x8", 0, false},
		"fewer, as asked for":        {two, "h100x8", 2, true},
		"fewer than the preset has":  {two, "h100x8", 0, false},
		"a preset that there is not": {two, "none", 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := of(tc.state, tc.preset, tc.count); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestVariables(t *testing.T) {
	if got, want := MemoryVariable("my-gpu/small"), "MEMSLICE_MEMORY_BYTES_MY_GPU"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := UUIDVariable("gpu"), "MEMSLICE_GPU_UUID_GPU"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDescribe(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{
		Phase: corev1.PodPending,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Message: "all is well"},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: "not ready"},
		},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "no image"},
		}}},
	}}
	if got, want := Describe(pod), "pod p is Pending, Ready: not ready, container main waits: ErrImageNeverPull no image"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if Ready(pod) {
		t.Error("it counts as ready")
	}
}

func TestHealthAndPresence(t *testing.T) {
	all := func(change func(*state.State)) *state.State {
		s := &state.State{Driver: state.Driver{Loaded: true}, GPUs: []state.GPU{{UUID: "GPU-0"}, {UUID: "GPU-1"}}}
		change(s)
		return s
	}
	for name, tc := range map[string]struct {
		state   *state.State
		healthy bool
		present int
	}{
		"as it should be":    {all(func(*state.State) {}), true, 2},
		"a GPU lost":         {all(func(s *state.State) { s.GPUs[0].Lost = true }), false, 1},
		"a GPU removed":      {all(func(s *state.State) { s.GPUs[0].Removed = true }), false, 1},
		"a query that fails": {all(func(s *state.State) { s.GPUs[0].Failures = map[state.Query]state.Result{"memoryInfo": 1} }), false, 2},
		"MIG mode on":        {all(func(s *state.State) { s.GPUs[0].MIG.Current = true }), false, 2},
		"MIG mode pending":   {all(func(s *state.State) { s.GPUs[0].MIG.Pending = true }), false, 2},
		"a MIG instance":     {all(func(s *state.State) { s.GPUs[0].Instances = make([]state.GPUInstance, 1) }), false, 2},
		"a process":          {all(func(s *state.State) { s.GPUs[0].Processes = make([]state.Process, 1) }), false, 2},
		"driver unloaded":    {all(func(s *state.State) { s.Driver.Loaded = false }), false, 0},
		"library absent":     {all(func(s *state.State) { s.Driver.LibraryAbsent = true }), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := healthy(tc.state); got != tc.healthy {
				t.Errorf("healthy: got %t", got)
			}
			if got := len(present(tc.state)); got != tc.present {
				t.Errorf("present: got %d, want %d", got, tc.present)
			}
		})
	}
}
