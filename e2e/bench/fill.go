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

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/pkg/gpu"
)

// full is a claim that holds all memory of the node's GPUs from the given one to
// before the other, counted in the order in which the scheduler tries them. It is
// allocated as the scheduler would, so that filling a node takes two requests.
func full(nodeName string, published []*resourceapi.ResourceSlice, from, to int) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d-to-%d", nodeName, from, to)},
		Status:     resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{NodeSelector: only(nodeName)}},
	}
	seen := 0
	for _, slice := range published {
		for _, device := range slice.Spec.Devices {
			if device.AllowMultipleAllocations == nil {
				continue
			}
			if from <= seen && seen < to {
				holdAll(claim, fmt.Sprint("gpu-", seen), slice.Spec.Pool.Name, device)
			}
			seen++
		}
	}
	return claim
}

func holdAll(claim *resourceapi.ResourceClaim, request, pool string, device resourceapi.Device) {
	memory := device.Capacity[gpu.CapacityMemory].Value
	requests := map[resourceapi.QualifiedName]resource.Quantity{gpu.CapacityMemory: memory}
	claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{
		Name: request,
		Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: shareClass,
			Capacity:        &resourceapi.CapacityRequirements{Requests: requests},
		},
	})
	// Different for each device is different enough.
	shareID := types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", len(claim.Spec.Devices.Requests)))
	devices := &claim.Status.Allocation.Devices
	devices.Results = append(devices.Results, resourceapi.DeviceRequestAllocationResult{
		Request: request, Driver: gpu.DriverName, Pool: pool, Device: device.Name,
		ShareID: &shareID, ConsumedCapacity: requests,
	})
}

func only(nodeName string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName}}},
	}}}
}
