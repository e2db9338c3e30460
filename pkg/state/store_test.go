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
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2/ktesting"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/state"
)

func record(uid types.UID, memory int64, gpus ...string) state.Record {
	r := state.Record{UID: uid, Namespace: "ns", Name: "claim-" + string(uid), Phase: state.Prepared, BootID: "boot",
		CreatedAt: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)}
	for _, uuid := range gpus {
		r.Grants = append(r.Grants, gpu.Grant{Request: "gpu", Pool: "node", Device: uuid + "-slice", ShareID: "s", Form: gpu.Slice, UUID: uuid, Memory: memory})
	}
	return r
}

func open(t *testing.T, dir string, o state.Options) *state.Store {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	s, err := state.Open(ctx, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func do(t *testing.T, s *state.Store, fn func(*state.Tx) error) {
	t.Helper()
	if err := s.Do(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func all(t *testing.T, s *state.Store) []state.Record {
	t.Helper()
	var records []state.Record
	do(t, s, func(tx *state.Tx) error { records = tx.All(); return nil })
	return records
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != ".lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "claims")
	s := open(t, dir, state.Options{})
	a, b := record("a", 1, "gpu-0"), record("b", 2, "gpu-0", "gpu-1")
	do(t, s, func(tx *state.Tx) error { return errors.Join(tx.Put(b), tx.Put(a)) })

	for name, s := range map[string]*state.Store{"in memory": s, "from the files": open(t, dir, state.Options{})} {
		do(t, s, func(tx *state.Tx) error {
			if got, ok := tx.Get("a"); !ok || !cmp.Equal(a, got) {
				t.Errorf("%s: Get(a): %v, %v", name, got, ok)
			}
			if got, ok := tx.Get("c"); ok {
				t.Errorf("%s: Get(c): %v", name, got)
			}
			if diff := cmp.Diff([]state.Record{a, b}, tx.All()); diff != "" {
				t.Errorf("%s: All (-want +got):\n%s", name, diff)
			}
			if diff := cmp.Diff([]state.Record{b}, slices.Collect(tx.OnGPU("gpu-1"))); diff != "" {
				t.Errorf("%s: OnGPU(gpu-1) (-want +got):\n%s", name, diff)
			}
			return nil
		})
	}

	moved := record("b", 3, "gpu-2")
	do(t, s, func(tx *state.Tx) error { return tx.Put(moved) })
	do(t, s, func(tx *state.Tx) error { return errors.Join(tx.Delete("a"), tx.Delete("a"), tx.Delete("never")) })
	do(t, s, func(tx *state.Tx) error {
		for uuid, want := range map[string][]state.Record{"gpu-0": nil, "gpu-1": nil, "gpu-2": {moved}} {
			if diff := cmp.Diff(want, slices.Collect(tx.OnGPU(uuid))); diff != "" {
				t.Errorf("OnGPU(%s) (-want +got):\n%s", uuid, diff)
			}
		}
		return nil
	})
	if diff := cmp.Diff([]string{"b.json"}, files(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestStoreKeepsItsOwnCopies(t *testing.T) {
	s := open(t, t.TempDir(), state.Options{})
	r := record("a", 1, "gpu-0")
	do(t, s, func(tx *state.Tx) error { return tx.Put(r) })
	r.Grants[0].Memory = 7
	all(t, s)[0].Grants[0].Memory = 8
	if got := all(t, s)[0].Grants[0].Memory; got != 1 {
		t.Errorf("a caller changed the index: memory is %d", got)
	}
}

func TestStoreRefusesUnsafeUID(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "claims")
	s := open(t, dir, state.Options{})
	victim := filepath.Join(parent, "victim.json")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []types.UID{"../victim", "", ".", "a/b", "a\x00", ".lock"} {
		do(t, s, func(tx *state.Tx) error {
			if err := tx.Put(record(uid, 1, "gpu-0")); err == nil {
				t.Errorf("Put of UID %q is accepted", uid)
			}
			if err := tx.Delete(uid); err == nil {
				t.Errorf("Delete of UID %q is accepted", uid)
			}
			return nil
		})
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error(err)
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("files %q", got)
	}
}

func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	good := record("good", 1, "gpu-0")
	do(t, open(t, dir, state.Options{}), func(tx *state.Tx) error {
		return errors.Join(tx.Put(good), tx.Put(record("cut", 1, "gpu-0")), tx.Put(record("empty", 1, "gpu-0")), tx.Put(record("swapped", 1, "gpu-0")))
	})
	truncate := func(name string, size int64) {
		if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
			t.Fatal(err)
		}
	}
	truncate("cut.json", 40)
	truncate("empty.json", 0)
	for _, err := range []error{
		os.Rename(filepath.Join(dir, "swapped.json"), filepath.Join(dir, "other.json")),
		os.WriteFile(filepath.Join(dir, "README"), []byte("hello"), 0o600),
		os.WriteFile(filepath.Join(dir, "huge.json"), make([]byte, 1<<20+1), 0o600),
		os.WriteFile(filepath.Join(dir, ".new-half.json"), []byte("{"), 0o600),
		os.Symlink("good.json", filepath.Join(dir, "link.json")),
		os.Mkdir(filepath.Join(dir, "dir.json"), 0o700),
		os.Mkdir(filepath.Join(dir, "lost+found"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	s := open(t, dir, state.Options{})
	if diff := cmp.Diff([]state.Record{good}, all(t, s)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"damaged", "good.json", "lost+found"}, files(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	var aside []string
	do(t, s, func(tx *state.Tx) error {
		for _, f := range tx.SetAside() {
			aside = append(aside, f.Name)
			if _, err := os.Lstat(f.Moved); err != nil || f.Err == nil {
				t.Errorf("%s: error %v, moved: %v", f.Name, f.Err, err)
			}
		}
		if again := tx.SetAside(); len(again) != 0 {
			t.Errorf("reported again: %v", again)
		}
		return nil
	})
	slices.Sort(aside)
	if diff := cmp.Diff([]string{"README", "cut.json", "dir.json", "empty.json", "huge.json", "link.json", "other.json"}, aside); diff != "" {
		t.Errorf("set aside (-want +got):\n%s", diff)
	}
	do(t, s, func(tx *state.Tx) error { return tx.Put(record("cut", 2, "gpu-0")) })
	if got := len(all(t, open(t, dir, state.Options{}))); got != 2 {
		t.Errorf("%d records after one was rebuilt, want 2", got)
	}
}

func TestDamagedFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	clock := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	o := state.Options{Now: func() time.Time { clock = clock.Add(time.Second); return clock }}
	for i := range 40 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%02d.json", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		open(t, dir, o)
	}
	kept := files(t, filepath.Join(dir, "damaged"))
	if len(kept) != 32 || !strings.HasSuffix(kept[0], "f08.json") || !strings.HasSuffix(kept[31], "f39.json") {
		t.Errorf("%d files are kept, from %s to %s; want the newest 32", len(kept), kept[0], kept[len(kept)-1])
	}
}

// TestTwoInstances has two processes' views of one directory: each sees at once
// what the other did.
func TestTwoInstances(t *testing.T) {
	dir := t.TempDir()
	stores := []*state.Store{open(t, dir, state.Options{}), open(t, dir, state.Options{})}
	model := map[types.UID]state.Record{}
	random := rand.New(rand.NewPCG(1, 1))
	for step := range 400 {
		s := stores[random.IntN(2)]
		uid := types.UID(fmt.Sprint("c", random.IntN(6)))
		do(t, s, func(tx *state.Tx) error {
			if diff := cmp.Diff(values(model), tx.All()); diff != "" {
				t.Fatalf("step %d (-want +got):\n%s", step, diff)
			}
			if random.IntN(3) == 0 {
				delete(model, uid)
				return tx.Delete(uid)
			}
			model[uid] = record(uid, random.Int64N(100), fmt.Sprint("gpu-", random.IntN(3)))
			return tx.Put(model[uid])
		})
		if random.IntN(50) == 0 {
			// Whatever becomes of the lock file, no change is missed.
			if err := os.Remove(filepath.Join(dir, ".lock")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func values(model map[types.UID]state.Record) []state.Record {
	var records []state.Record
	for _, r := range model {
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b state.Record) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return records
}

// TestExclusive has many goroutines of two instances add to one number.
func TestExclusive(t *testing.T) {
	dir := t.TempDir()
	const each = 20
	var wg sync.WaitGroup
	for range 2 {
		s := open(t, dir, state.Options{})
		for range 4 {
			wg.Go(func() {
				for range each {
					if err := s.Do(t.Context(), func(tx *state.Tx) error {
						r, ok := tx.Get("sum")
						if !ok {
							r = record("sum", 0, "gpu-0")
						}
						r.Grants[0].Memory++
						return tx.Put(r)
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if got := all(t, open(t, dir, state.Options{}))[0].Grants[0].Memory; got != 2*4*each {
		t.Errorf("%d additions left %d", 2*4*each, got)
	}
}

func TestDoGivesUp(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, state.Options{}), open(t, dir, state.Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the kubelet has hung up")
	do(t, a, func(*state.Tx) error {
		cancel(stop)
		for name, s := range map[string]*state.Store{"this instance": a, "the other": b} {
			if err := s.Do(ctx, func(*state.Tx) error { return nil }); !errors.Is(err, stop) {
				t.Errorf("%s has the lock: error %v", name, err)
			}
		}
		return nil
	})
	if err := b.Do(t.Context(), func(*state.Tx) error { return nil }); err != nil {
		t.Errorf("after it was released: %v", err)
	}
}
