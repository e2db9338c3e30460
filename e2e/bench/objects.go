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
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/pkg/gpu"
)

// The chart's classes.
const (
	shareClass = "slice.memslice.dev"
	wholeClass = "gpu.memslice.dev"
	migClass   = "mig.memslice.dev"
)

// claimKind is what one pod asks for.
type claimKind string

const (
	share     claimKind = "4Gi"
	spread    claimKind = "4Gi, spread"
	whole     claimKind = "a whole GPU"
	partition claimKind = "a 1g.10gb"
)

// node has room for any number of pods. Nothing but this program says that it
// is ready.
func node(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("192"),
		corev1.ResourceMemory: resource.MustParse("2Ti"),
		corev1.ResourcePods:   resource.MustParse("1000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Capacity:    room,
			Allocatable: room,
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated"}},
		},
	}
}

// resourceSlices are the objects that the plugin's ResourceSlice controller would
// make. As there, the names are in the order in which slices are to be tried.
func resourceSlices(nodeName string, resources resourceslice.DriverResources) []*resourceapi.ResourceSlice {
	var objects []*resourceapi.ResourceSlice
	for _, name := range slices.Sorted(maps.Keys(resources.Pools)) {
		pool := resources.Pools[name]
		for _, slice := range pool.Slices {
			objects = append(objects, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%04d", nodeName, len(objects))},
				Spec: resourceapi.ResourceSliceSpec{
					Driver:         gpu.DriverName,
					NodeName:       &nodeName,
					Pool:           resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
					Devices:        slice.Devices,
					SharedCounters: slice.SharedCounters,
				},
			})
		}
	}
	return objects
}

const requestName = "gpu"

func claim(name string, kind claimKind) *resourceapi.ResourceClaim {
	request := resourceapi.DeviceRequest{Name: requestName}
	switch kind {
	case share:
		request.Exactly = &resourceapi.ExactDeviceRequest{DeviceClassName: shareClass, Capacity: amounts(0)}
	case spread:
		request.FirstAvailable = ranked()
	case whole:
		request.Exactly = &resourceapi.ExactDeviceRequest{DeviceClassName: wholeClass}
	case partition:
		request.Exactly = &resourceapi.ExactDeviceRequest{DeviceClassName: migClass, Selectors: []resourceapi.DeviceSelector{{
			CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.attributes[%q].profile == %q", gpu.DriverName, "1g.10gb")},
		}}}
	}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}},
	}
}

// ranked is what the chart's policy makes of a claim that is to be spread.
func ranked() []resourceapi.DeviceSubRequest {
	var alternatives []resourceapi.DeviceSubRequest
	for rank := 1; rank <= gpu.MaxRanks; rank++ {
		alternatives = append(alternatives, resourceapi.DeviceSubRequest{
			Name: rankName(rank), DeviceClassName: shareClass, Capacity: amounts(rank),
		})
	}
	return append(alternatives, resourceapi.DeviceSubRequest{
		Name: "packed", DeviceClassName: shareClass, Capacity: amounts(0),
	})
}

// amounts are those of a share, with a rank unless that is 0.
func amounts(rank int) *resourceapi.CapacityRequirements {
	requests := map[resourceapi.QualifiedName]resource.Quantity{gpu.CapacityMemory: resource.MustParse("4Gi")}
	if rank > 0 {
		requests[resourceapi.QualifiedName(rankName(rank))] = resource.MustParse("1")
	}
	return &resourceapi.CapacityRequirements{Requests: requests}
}

func rankName(rank int) string { return fmt.Sprint(gpu.CapacityRank, rank) }

// pod uses the claim of the same name. Its container never runs.
func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName:            account,
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			ResourceClaims:                []corev1.PodResourceClaim{{Name: requestName, ResourceClaimName: &name}},
			Containers: []corev1.Container{{
				Name:      "main",
				Image:     "docker.io/memslice/demo:dev",
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: requestName}}},
			}},
		},
	}
}
