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

package state

import "fmt"

// Refusal is what the driver says no to, and why.
type Refusal struct {
	// Result is what NVML answers, Reason what a person reads.
	Result Result
	Reason string
}

func refuse(result Result, format string, args ...any) error {
	return &Refusal{Result: result, Reason: fmt.Sprintf(format, args...)}
}

func (r *Refusal) Error() string { return r.Reason }
