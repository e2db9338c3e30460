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

//go:build e2e

package e2e

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/e2e/harness"
)

// testLabel marks the namespaces of these tests.
const testLabel = "e2e.memslice.dev/test"

// exactly is a request for one device of a class.
func exactly(name, class string, changes ...func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
	exact := &resourceapi.ExactDeviceRequest{DeviceClassName: class}
	for _, change := range changes {
		change(exact)
	}
	return resourceapi.DeviceRequest{Name: name, Exactly: exact}
}

// share is a request for memory of a GPU.
func share(name, memory string, changes ...func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
	return exactly(name, harness.ShareClass, append(changes, capacity("memory", memory))...)
}

// whole is a request for a GPU.
func whole(name string, changes ...func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
	return exactly(name, harness.WholeClass, changes...)
}

// partition is a request for a MIG instance of a profile.
func partition(name, profile string, changes ...func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
	return exactly(name, harness.MIGClass, append(changes, matching(`device.attributes["gpu.memslice.dev"].profile == "`+profile+`"`))...)
}

// onGPU picks a card, in whatever form.
func onGPU(uuid string) func(*resourceapi.ExactDeviceRequest) {
	return matching(`device.attributes["gpu.memslice.dev"].parentUUID == "` + uuid + `"`)
}

func capacity(name resourceapi.QualifiedName, amount string) func(*resourceapi.ExactDeviceRequest) {
	return func(r *resourceapi.ExactDeviceRequest) {
		if r.Capacity == nil {
			r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
		}
		r.Capacity.Requests[name] = resource.MustParse(amount)
	}
}

func matching(expression string) func(*resourceapi.ExactDeviceRequest) {
	return func(r *resourceapi.ExactDeviceRequest) {
		r.Selectors = append(r.Selectors, selector(expression))
	}
}

func selector(expression string) resourceapi.DeviceSelector {
	return resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}
}

func count(n int64) func(*resourceapi.ExactDeviceRequest) {
	return func(r *resourceapi.ExactDeviceRequest) {
		r.AllocationMode, r.Count = resourceapi.DeviceAllocationModeExactCount, n
	}
}

// isolated is requests, all of which ask for a mechanism of isolation.
func isolated(mechanism string, requests ...resourceapi.DeviceRequest) resourceapi.DeviceClaim {
	return resourceapi.DeviceClaim{
		Requests: requests,
		Config: []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver:     harness.DriverName,
				Parameters: runtime.RawExtension{Raw: []byte(`{"apiVersion":"memslice.dev/v1alpha1","kind":"ShareConfig","isolation":"` + mechanism + `"}`)},
			},
		}}},
	}
}

func asAdmin(r *resourceapi.ExactDeviceRequest) { r.AdminAccess = ptr.To(true) }

// newContainer waits to be told to end. With no claims it gets no devices.
func newContainer(name string, claims ...corev1.ResourceClaim) corev1.Container {
	return corev1.Container{
		Name: name, Image: harness.DemoImage, ImagePullPolicy: corev1.PullNever,
		// The shell of a container does not end by itself when told to.
		Command:   []string{"sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"},
		Resources: corev1.ResourceRequirements{Claims: claims},
	}
}

// all is every request of a claim, one of a single request of it.
func all(claim string) corev1.ResourceClaim { return corev1.ResourceClaim{Name: claim} }

func one(claim, request string) corev1.ResourceClaim {
	return corev1.ResourceClaim{Name: claim, Request: request}
}

// newPod has claims, by their names, and containers that use them.
func newPod(name string, claims []string, containers ...corev1.Container) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			Containers:                    containers,
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(10)),
		},
	}
	for _, claim := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
	}
	return pod
}
