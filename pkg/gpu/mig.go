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

package gpu

import "strings"

// MultiInstance is what the Multi-Instance mode (MIG) of a GPU is, and can be made of.
type MultiInstance struct {
	// Enabled is the mode in force. While it is on, the GPU can be used through
	// its instances only. Pending is the mode after the GPU's next reset.
	Enabled bool
	Pending bool

	// Profiles are the kinds of instances, from NVML, ordered by its slot.
	Profiles []Profile

	// Instances are those that exist, whoever made them, ordered by place. A
	// GPU instance that is divided into several compute instances is there once
	// for each.
	Instances []Instance

	// Unread tells that the driver did not say which instances exist.
	Unread bool
}

// Profile is a kind of MIG instance.
type Profile struct {
	Name string // as nvidia-smi prints it: "1g.10gb", "1g.10gb+me"
	ID   int    // by which NVML makes one

	MemorySlices  int // the size of a placement
	ComputeSlices int
	// Count is how many of them an otherwise empty GPU takes.
	Count int

	Memory          int64 // bytes
	Multiprocessors int
	Engines         Engines

	// Starts are the memory slices at which one can begin.
	Starts []int
}

// Engines are the fixed-function units of a GPU or of a part of it.
type Engines struct {
	Copy, Decoders, Encoders, JPEG, OFA int
}

// Partition is a place on a GPU that a MIG instance takes.
type Partition struct {
	Profile string
	Start   int // the first memory slice
	Size    int // memory slices
}

// Slug is the profile's name, fit for a part of a DNS label or of a file's name:
// "1g-10gb-me" for "1g.10gb+me", "1g-24gb-no-me" for "1g.24gb-me".
func (p Partition) Slug() string { return slugs.Replace(p.Profile) }

var slugs = strings.NewReplacer("-", "-no-", ".", "-", "+", "-")

// Overlaps tells whether two places on one GPU have memory in common.
func (p Partition) Overlaps(q Partition) bool {
	return p.Start < q.Start+q.Size && q.Start < p.Start+p.Size
}

// Instance is a MIG instance that exists.
type Instance struct {
	// UUID is "MIG-" and a UUID, new for each instance. It is empty for a GPU
	// instance without a compute instance, which takes its place and cannot be
	// used.
	UUID string

	Partition

	// GPUInstance and ComputeInstance are NVML's numbers.
	GPUInstance     int
	ComputeInstance int

	Memory          int64 // bytes
	Multiprocessors int
	Engines         Engines
}
