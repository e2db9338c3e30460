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

package state_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/pkg/state"
	"github.com/memslice/memslice/pkg/state/statetest"
)

// TestEveryStepCanFail makes each step of each change fail, and the process and
// the machine die there. Whatever is reported, the record on the disk is the
// old or the new one as a whole, it is the new one where success was reported,
// and no other record suffers.
func TestEveryStepCanFail(t *testing.T) {
	bystander, before, after := record("b", 7, "gpu-0"), record("a", 1, "gpu-0"), record("a", 2, "gpu-1")
	for name, tc := range map[string]struct {
		change   func(*state.Tx) error
		old, new []state.Record
	}{
		"add":     {func(tx *state.Tx) error { return tx.Put(record("c", 1, "gpu-0")) }, []state.Record{before, bystander}, []state.Record{before, bystander, record("c", 1, "gpu-0")}},
		"replace": {func(tx *state.Tx) error { return tx.Put(after) }, []state.Record{before, bystander}, []state.Record{after, bystander}},
		"delete":  {func(tx *state.Tx) error { return tx.Delete("a") }, []state.Record{before, bystander}, []state.Record{bystander}},
	} {
		for _, mode := range statetest.Modes {
			for _, power := range []bool{true, false} {
				for at := 1; ; at++ {
					dir := t.TempDir()
					do(t, open(t, dir, state.Options{}), func(tx *state.Tx) error {
						if err := tx.Put(before); err != nil {
							return err
						}
						return tx.Put(bystander)
					})
					faults := &statetest.Faults{Mode: mode}
					disk := &statetest.Disk{Faults: faults}
					s := open(t, dir, state.Options{FS: disk})
					faults.At = faults.Steps() + at
					err := s.Do(t.Context(), tc.change)
					reached := faults.Steps() >= faults.At
					if !power {
						disk.PowerLoss()
					}

					where := fmt.Sprintf("%s, %s at step %d, power %v", name, mode, at, power)
					again := open(t, dir, state.Options{})
					got := all(t, again)
					isOld, isNew := cmp.Equal(tc.old, got), cmp.Equal(tc.new, got)
					if !isOld && !isNew || err == nil && !isNew {
						t.Errorf("%s: error %v, and the records are %v", where, err, got)
					}
					if left := strings.Join(files(t, dir), " "); strings.Contains(left, ".new-") || strings.Contains(left, "damaged") {
						t.Errorf("%s: files %s", where, left)
					}
					// The process lives on where only one step failed.
					if reached && power && (mode == statetest.Fail || mode == statetest.FailAfter) {
						if diff := cmp.Diff(got, all(t, s)); diff != "" {
							t.Errorf("%s: the instance that failed sees (-on the disk +got):\n%s", where, diff)
						}
						do(t, s, tc.change)
						if diff := cmp.Diff(tc.new, all(t, again)); diff != "" {
							t.Errorf("%s: after a retry (-want +got):\n%s", where, diff)
						}
					}
					if reached && err == nil {
						t.Errorf("%s: no error", where)
					}
					if !reached {
						if at < 3 {
							t.Errorf("%s takes %d durable steps only", name, at-1)
						}
						break
					}
				}
			}
		}
	}
}
