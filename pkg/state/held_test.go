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
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/state"
)

func TestHeld(t *testing.T) {
	s := open(t, t.TempDir(), state.Options{})
	a, b, gone := record("a", 1, "gpu-0"), record("b", 2, "gpu-0", "gpu-1"), record("c", 3, "gpu-2")
	a.Phase = state.Preparing // and may be on the GPU
	do(t, s, func(tx *state.Tx) error { return errors.Join(tx.Put(b), tx.Put(gone), tx.Put(a), tx.Delete("c")) })
	held, err := s.Held(t.Context())
	want := map[string][]gpu.Grant{"gpu-0": {a.Grants[0], b.Grants[0]}, "gpu-1": {b.Grants[1]}}
	if diff := cmp.Diff(want, held); diff != "" || err != nil {
		t.Errorf("error %v, (-want +got):\n%s", err, diff)
	}
}

func TestWhenFree(t *testing.T) {
	s := open(t, t.TempDir(), state.Options{})
	look := record("look", 0, "gpu-1")
	look.Grants[0].AdminAccess = true
	do(t, s, func(tx *state.Tx) error { return errors.Join(tx.Put(record("a", 1, "gpu-0")), tx.Put(look)) })
	failure := errors.New("in use by a process that no claim has")
	when := func(uuid string, result error) (called, free bool, err error) {
		free, err = s.WhenFree(t.Context(), uuid, func() error { called = true; return result })
		return called, free, err
	}
	for name, tc := range map[string]struct {
		uuid string
		free bool
		err  error
	}{
		"a claim has a share":             {uuid: "gpu-0"},
		"an administrator may look at it": {uuid: "gpu-1"},
		"free":                            {uuid: "gpu-2", free: true},
		"free, and it fails":              {uuid: "gpu-2", free: true, err: failure},
	} {
		t.Run(name, func(t *testing.T) {
			called, free, err := when(tc.uuid, tc.err)
			if called != tc.free || free != tc.free || !errors.Is(err, tc.err) {
				t.Errorf("called %v, free %v, error %v; want %v and %v", called, free, err, tc.free, tc.err)
			}
		})
	}
	do(t, s, func(tx *state.Tx) error { return tx.Delete("a") })
	if called, free, err := when("gpu-0", nil); !called || !free || err != nil {
		t.Errorf("after the claim: called %v, free %v, error %v", called, free, err)
	}
}

// TestWhenFreeIsExclusive: no claim gets a GPU that is being changed.
func TestWhenFreeIsExclusive(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, state.Options{}), open(t, dir, state.Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the kubelet has hung up")
	free, err := a.WhenFree(t.Context(), "gpu-0", func() error {
		cancel(stop)
		for name, s := range map[string]*state.Store{"this instance": a, "the other": b} {
			if err := s.Do(ctx, func(tx *state.Tx) error { return tx.Put(record("a", 1, "gpu-0")) }); !errors.Is(err, stop) {
				t.Errorf("%s does not have to wait: error %v", name, err)
			}
		}
		return nil
	})
	if !free || err != nil {
		t.Errorf("free %v, error %v", free, err)
	}
}
