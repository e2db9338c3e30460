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

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ShareStatusKind is the kind of a ShareStatus.
const ShareStatusKind = "ShareStatus"

// ShareStatus says what a device of a claim came to. It is the data of the
// device's entry in status.devices of the ResourceClaim.
type ShareStatus struct {
	metav1.TypeMeta `json:",inline"`

	// GPU is the UUID of the card.
	GPU string `json:"gpu"`

	// MemoryBytes and ComputePercent are the amounts granted.
	MemoryBytes    int64 `json:"memoryBytes"`
	ComputePercent int64 `json:"computePercent,omitempty"`

	// MemoryIsolation and ComputeIsolation are what enforces them: cgroup, mig or
	// none.
	MemoryIsolation  string `json:"memoryIsolation"`
	ComputeIsolation string `json:"computeIsolation"`

	// Limits are those of the containers that have the device, the latest first,
	// as far as there is room for them.
	Limits []LimitStatus `json:"limits,omitempty"`

	// UsedBytes is what its processes had when the entry was written, PeakBytes
	// the most that was seen since the claim was prepared or the driver's plugin
	// started.
	UsedBytes int64 `json:"usedBytes"`
	PeakBytes int64 `json:"peakBytes"`

	// Since is when the claim was prepared.
	Since metav1.Time `json:"since"`
}

// LimitStatus is the limit of a container.
type LimitStatus struct {
	PodUID      string `json:"podUID"`
	ContainerID string `json:"containerID"`

	// Bytes is the limit that the driver has told, of the container on that GPU.
	// It is the sum where the container has several shares of the GPU.
	Bytes int64 `json:"bytes"`

	// Since is when the limit was set for the first time.
	Since metav1.Time `json:"since"`
}
