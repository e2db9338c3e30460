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

package kernel

import "github.com/memslice/memslice/e2e/fakegpu/state"

// Operation is what a program asks for.
type Operation string

// The operations.
const (
	Open     Operation = "open"     // a GPU, by the minor number of its device node
	Allocate Operation = "allocate" // bytes of it
	Free     Operation = "free"     // bytes of it
	Info     Operation = "info"     // what there is of it
)

// request and answer are a line of JSON each.
type request struct {
	Operation Operation `json:"operation"`
	Minor     int       `json:"minor,omitempty"`
	Bytes     uint64    `json:"bytes,omitempty"`
}

type answer struct {
	Result state.Result `json:"result"`
	Reason string       `json:"reason,omitempty"`
	View
}

// View is a GPU as a program sees it. Total and Left are in bytes, and those of
// the program's own cgroup where that has a limit.
type View struct {
	UUID  string `json:"uuid,omitempty"`
	Total uint64 `json:"total,omitempty"`
	Left  uint64 `json:"left,omitempty"`
}
