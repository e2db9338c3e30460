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

// Held is the grants of all records by the GPU's UUID, in the order of the
// claims' UIDs.
func (s *Store) Held(ctx context.Context) (map[string][]gpu.Grant, error) {
	held := make(map[string][]gpu.Grant)
	err := s.Do(ctx, func(tx *Tx) error {
		for _, r := range tx.All() {
			for _, g := range r.Grants {
				held[g.UUID] = append(held[g.UUID], g)
			}
		}
		return nil
	})
	return held, err
}

// WhenFree calls fn if no record has a grant on a GPU, admin access included,
// and returns its error. Nobody can use the records meanwhile.
func (s *Store) WhenFree(ctx context.Context, uuid string, fn func() error) (free bool, err error) {
	err = s.Do(ctx, func(*Tx) error {
		if free = len(s.onGPU[uuid]) == 0; free {
			return fn()
		}
		return nil
	})
	return free, err
}
