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

// The names under which this driver's devices and their capacities are known to
// the API, shared by those who publish devices and those who read allocations.
const (
	DriverName      = "gpu.memslice.dev"
	CapacityMemory  = "memory"  // bytes
	CapacityCompute = "compute" // percent of the multiprocessors

	// CapacityRank and a number from 1 names a capacity of one, which one share
	// of a GPU can have.
	CapacityRank = "rank"
	// MaxRanks is what an expanded request has room for: the API allows eight
	// alternatives, the last of which asks for no rank.
	MaxRanks = 7
)

// Form is a way in which a GPU is handed out. The forms of one GPU exclude each
// other.
type Form string

const (
	// Whole is the entire GPU for one claim.
	Whole Form = "gpu"
	// Slice is a share of the GPU's memory and compute, next to others.
	Slice Form = "slice"
	// MIG is a partition with hardware of its own, next to others.
	MIG Form = "mig"
)

// Isolation is what keeps the holder of a device within the amount granted.
type Isolation string

const (
	// IsolationNone is advice: nothing enforces the amount.
	IsolationNone Isolation = "none"
	// IsolationCgroup is the kernel driver's limit on the memory that the
	// processes in a container's cgroup can have.
	IsolationCgroup Isolation = "cgroup"
	// IsolationMPS is the limit that an MPS control daemon sets for its clients.
	IsolationMPS Isolation = "mps"
	// IsolationMIG is the hardware's.
	IsolationMIG Isolation = "mig"
)

// Device is a GPU in one of its forms, as it is published and allocated.
type Device struct {
	Pool string
	Name string // unique in the pool, a DNS label
	Form Form
	GPU  *GPU

	// Memory is the capacity that is published, in bytes: for a Slice what all
	// shares together can have. 0 where the GPU reports no memory.
	Memory int64

	// MemoryMin and MemoryStep say which amounts a share of a Slice can have,
	// in bytes: the minimum and a whole number of steps. Memory is one of them.
	MemoryMin  int64
	MemoryStep int64

	// Ranks is how many shares of a Slice can have a rank.
	Ranks int

	// Profile and Partition are what a MIG device is and where. Existing is the
	// UUID of the instance where an administrator made it, and empty where it is
	// made for each claim.
	Profile   Profile
	Partition Partition
	Existing  string

	// MIGOnDemand tells that the GPU goes into MIG mode, or out of it, as the
	// claim that the device is given to needs it.
	MIGOnDemand bool

	// Withheld is why no new claim may have the device, although it is
	// published for those that have; empty where one may.
	Withheld Withheld

	// MemoryIsolation and ComputeIsolation are what enforces the amounts
	// granted of this device.
	MemoryIsolation  Isolation
	ComputeIsolation Isolation

	// MustIsolate refuses claims that want a share without isolation.
	MustIsolate bool

	// Evicts tells that pods are evicted that have more of the device than they
	// were granted.
	Evicts bool
}

// Withheld is a reason to keep new claims from a device.
type Withheld string

const (
	// Unavailable is a device whose GPU cannot be read, or not be offered as it
	// is.
	Unavailable Withheld = "unavailable"
	// Occupied is a device whose place on the GPU is taken by a MIG instance
	// that this driver did not make.
	Occupied Withheld = "occupied"
	// Draining is a device in a form that the node's configuration no longer
	// offers.
	Draining Withheld = "draining"
)

// Grant is what one allocation result gives a claim of one device.
type Grant struct {
	// Request is the request that the grant satisfies, with the chosen
	// alternative where it has any: "gpu" or "gpu/large".
	Request string

	Pool    string
	Device  string
	ShareID string // tells shares of one device apart; empty for whole devices

	Form Form
	UUID string // of the GPU

	// Partition and Existing are those of the device, for a MIG device.
	Partition Partition
	Existing  string

	// Memory is the granted amount in bytes, exactly as allocated. It covers
	// everything that the container's processes hold on the GPU, CUDA's own
	// context included.
	Memory int64

	// Compute is the granted percentage of the multiprocessors; 0 is best
	// effort.
	Compute int64

	// Isolation is what holds the claim to Memory. It is empty for a grant of a
	// release that knew no mechanism.
	Isolation Isolation

	// AdminAccess is access beside the allocations of others. It consumes
	// nothing.
	AdminAccess bool
}

// Conflicts tells whether two grants of MIG devices of one GPU cannot be had
// together.
func (g Grant) Conflicts(h Grant) bool {
	if g.Existing != "" && h.Existing != "" {
		return g.Existing == h.Existing
	}
	return g.Partition.Overlaps(h.Partition)
}

// Assignment is a grant and what it came to on the GPU.
type Assignment struct {
	Grant

	// Instance is that of a MIG device, and otherwise zero.
	Instance Instance
}
