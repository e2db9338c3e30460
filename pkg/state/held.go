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

import (
	"context"

	"github.com/memslice/memslice/pkg/gpu"
)

// HeldGPUs is the GPUs, by UUID, that have a record's grant, and the form in
// which they have been handed out. Admin access, which goes with any form,
// counts where there is nothing else.
func (s *Store) HeldGPUs(ctx context.Context) (map[string]gpu.Form, error) {
	held := make(map[string]gpu.Form)
	err := s.Do(ctx, func(*Tx) error {
		for _, r := range s.records {
			for _, g := range r.Grants {
				if _, known := held[g.UUID]; !known || !g.AdminAccess {
					held[g.UUID] = g.Form
				}
			}
		}
		return nil
	})
	return held, err
}
