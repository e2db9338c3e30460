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

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeConfigKind is the kind of a NodeConfig.
const NodeConfigKind = "NodeConfig"

// NodeConfig says how the GPUs of a node are offered.
type NodeConfig struct {
	metav1.TypeMeta `json:",inline"`

	// NodeSelector picks the nodes that the document is for, by their labels.
	// Without it the document is for every node.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// Defaults are for GPUs that no rule matches, and for what a rule leaves
	// out.
	Defaults GPUConfig `json:"defaults,omitempty"`

	// GPUs are rules. The first one that matches a GPU is that GPU's.
	GPUs []GPURule `json:"gpus,omitempty"`
}

// GPURule is how the GPUs that match are offered.
type GPURule struct {
	Match     GPUMatch `json:"match,omitempty"`
	GPUConfig `json:",inline"`
}

// GPUMatch picks GPUs. A GPU has to match each list that is there, by one of its
// entries.
type GPUMatch struct {
	// UUIDs are as "nvidia-smi -L" prints them.
	UUIDs []string `json:"uuids,omitempty"`
	// Products are product names, or patterns of them with *, ? and [].
	Products []string `json:"products,omitempty"`
	// Architectures are names as nvidia-smi prints them, in any case: Ampere,
	// Hopper, Ada Lovelace.
	Architectures []string `json:"architectures,omitempty"`
}

// GPUConfig is how a GPU is offered.
type GPUConfig struct {
	// Offer is in which forms. Slice and GPU by default. A GPU that is in MIG
	// mode and not offered for MIG is offered as the instances that it has.
	Offer []Form `json:"offer,omitempty"`

	Memory MemoryConfig `json:"memory,omitempty"`

	// Ranks is how many shares of a GPU can have a rank, by which shares are
	// spread over GPUs: 0 to 7, and 7 by default.
	Ranks *int32 `json:"ranks,omitempty"`

	MIG MIGConfig `json:"mig,omitempty"`

	Isolation IsolationConfig `json:"isolation,omitempty"`
}

// Form is a way in which a GPU is handed out.
type Form string

// The forms.
const (
	FormSlice Form = "Slice" // shares of its memory and compute
	FormGPU   Form = "GPU"   // the whole
	FormMIG   Form = "MIG"   // MIG instances, made as claims ask for them
)

// MemoryConfig is which amounts shares can have.
type MemoryConfig struct {
	// Min is the smallest share, and what smaller requests get. 256Mi by
	// default.
	Min *resource.Quantity `json:"min,omitempty"`
	// Step is by how much shares grow from Min. 1Mi by default.
	Step *resource.Quantity `json:"step,omitempty"`
	// Reserve is what no share can have, beside what the driver keeps for
	// itself. 0 by default.
	Reserve *resource.Quantity `json:"reserve,omitempty"`
}

// MIGConfig is how MIG instances are made.
type MIGConfig struct {
	// Mode is who turns MIG mode on and off. Keep by default.
	Mode MIGMode `json:"mode,omitempty"`
	// Profiles are the names of those that are offered: "1g.10gb". All that the
	// GPU has by default.
	Profiles []string `json:"profiles,omitempty"`
}

// MIGMode is what turns the MIG mode of a GPU on and off.
type MIGMode string

// The modes.
const (
	// MIGKeep leaves it as it is. The GPU is offered in the forms that the
	// present mode allows.
	MIGKeep MIGMode = "Keep"
	// MIGEnabled turns it on as soon as nothing uses the GPU.
	MIGEnabled MIGMode = "Enabled"
	// MIGOnDemand turns it on for the first claim to an instance, and off for
	// the first claim to a share or to the whole. Only GPUs that need no reset
	// for that can do it, from Hopper on.
	MIGOnDemand MIGMode = "OnDemand"
)

// IsolationConfig is what holds shares to their amounts.
type IsolationConfig struct {
	// Memory is the mechanism: Cgroup, None, or, by default, Any for the
	// strongest that the driver has, which may be none.
	Memory Isolation `json:"memory,omitempty"`

	// Required keeps GPUs without a mechanism from being shared, and refuses
	// claims that want none. False by default.
	Required *bool `json:"required,omitempty"`

	// OnOverUse is what becomes of a pod that has more than it was granted.
	// Report by default.
	OnOverUse OverUse `json:"onOverUse,omitempty"`
}

// OverUse is what becomes of a pod that has more than it was granted.
type OverUse string

const (
	// OverUseReport tells of it: as an event, in the claim's status and as a
	// metric.
	OverUseReport OverUse = "Report"
	// OverUseEvict evicts the pod, too, as far as its disruption budget allows.
	OverUseEvict OverUse = "Evict"
)
