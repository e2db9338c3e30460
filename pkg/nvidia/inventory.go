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

package nvidia

import (
	"fmt"

	"github.com/memslice/memslice/pkg/gpu"
)

// Inventory is what one scan has found.
type Inventory struct {
	// GPUs are sorted by PCI address, then UUID: never by NVML's index, which
	// moves when a GPU comes or goes.
	GPUs []gpu.GPU

	// Problems are the questions that were not answered.
	Problems []Problem
}

// Problem is a question that NVML or the kernel did not answer.
type Problem struct {
	// GPU is its UUID, else its PCI address, else its index; "all GPUs" where
	// the question was about the driver.
	GPU string

	// Query is what was asked: NVML's function or the attribute.
	Query string

	Err error

	// LeftOut tells that the GPU is missing from the inventory. Otherwise it
	// merely lost what the answer would have told.
	LeftOut bool
}

func (p Problem) Error() string {
	outcome := "the value is unknown"
	if p.LeftOut {
		outcome = "left out"
	}
	return fmt.Sprintf("%s: %s: %v (%s)", p.GPU, p.Query, p.Err, outcome)
}

func (p Problem) Unwrap() error { return p.Err }
