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

const (
	// APIVersion is the apiVersion of every document of this package.
	APIVersion = "memslice.dev/v1alpha1"

	// ShareConfigKind is the kind of a ShareConfig.
	ShareConfigKind = "ShareConfig"
)

// ShareConfig says how the devices of a claim are handed out. It is the opaque
// configuration of the driver gpu.memslice.dev, in a ResourceClaim or in a
// DeviceClass.
type ShareConfig struct {
	metav1.TypeMeta `json:",inline"`

	// Isolation is what has to hold a share to its memory. Any by default.
	Isolation Isolation `json:"isolation,omitempty"`
}

// Isolation is a mechanism that holds a container to the memory it was granted.
type Isolation string

const (
	// IsolationAny is the strongest mechanism that the GPU offers, which may be
	// none.
	IsolationAny Isolation = "Any"
	// IsolationNone is no mechanism: the grant is accounted and not enforced.
	IsolationNone Isolation = "None"
	// IsolationCgroup is the kernel driver's limit on the container's cgroup.
	IsolationCgroup Isolation = "Cgroup"
	// IsolationMPS is the limit that an MPS control daemon sets for its clients.
	IsolationMPS Isolation = "MPS"
)

// Default fills in what was left out.
func (c *ShareConfig) Default() {
	if c.Isolation == "" {
		c.Isolation = IsolationAny
	}
}
