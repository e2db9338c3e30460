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

import "github.com/memslice/memslice/pkg/gpu"

// Offer is how one GPU is offered: in which forms, in which amounts.
type Offer struct {
	GPU  gpu.GPU
	Pool string

	// Shares and Whole say whether the GPU is offered in shares, and whole.
	Shares bool
	Whole  bool

	// Profiles are offered at every place where an instance can be made;
	// Instances are offered as they exist.
	Profiles  []gpu.Profile
	Instances []gpu.Instance

	// MIGOnDemand is passed on to each device.
	MIGOnDemand bool

	// MemoryMin and MemoryStep are the smallest share and by how much shares
	// grow, Reserve is what no share can have of what the driver leaves. All in
	// bytes.
	MemoryMin  int64
	MemoryStep int64
	Reserve    int64

	// Ranks is how many shares can have a rank, at most gpu.MaxRanks.
	Ranks int

	// Isolation is what holds shares to their memory; empty for nothing.
	// MustIsolate and Evicts are passed on to the share device.
	Isolation   gpu.Isolation
	MustIsolate bool
	Evicts      bool

	// Occupied are the places of instances that are neither offered nor made
	// for claims. What cannot be had beside them is withheld.
	Occupied []gpu.Partition

	// Withheld is put on every device of the GPU.
	Withheld gpu.Withheld
}
