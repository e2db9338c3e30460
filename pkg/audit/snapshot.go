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

package audit

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/isolation"
)

// Snapshot is what one audit found.
type Snapshot struct {
	Time   time.Time
	Claims []Claim // ordered by UID
	GPUs   []GPU   // those that claims have something of, ordered by UUID
}

// Claim is a prepared claim.
type Claim struct {
	UID       types.UID
	Namespace string
	Name      string
	Since     time.Time
	Pods      []Pod // that it is reserved for
	Devices   []Device
}

// Pod is one that a claim is reserved for.
type Pod struct {
	UID  string
	Name string
}

// Device is one of a claim, and what its processes have.
type Device struct {
	Grant gpu.Grant

	// Used is what the processes have now, Peak the most that any audit saw, both
	// in bytes.
	Used uint64
	Peak uint64

	// Known is false where the GPU was not to be asked.
	Known bool

	// Limits are those of the containers that have the device.
	Limits []isolation.Limit
}

// Over tells whether processes have more than was granted.
func (d Device) Over() bool { return !d.Grant.AdminAccess && d.Used > uint64(d.Grant.Memory) }

// GPU is the use of one that has no claim to it.
type GPU struct {
	UUID    string
	Foreign []Foreign
}

// Foreign is a process that uses a GPU without a claim.
type Foreign struct {
	PID     int
	Command string
	Memory  uint64 // bytes
}
