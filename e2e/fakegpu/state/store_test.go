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
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
)

// writerVariable makes the test binary a process that changes a store.
const writerVariable = "FAKEGPU_STATE_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerVariable); dir != "" {
		if err := write(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rounds is how many events each writing process raises.
const rounds = 60

// write raises events, and in between does other things to a random GPU.
func write(dir string) error {
	store := Open(dir)
	for range rounds {
		err := store.Update(func(s *State) error {
			gpu := &s.GPUs[rand.IntN(len(s.GPUs))]
			switch rand.IntN(4) {
			case 0:
				gpu.Fail(QueryMemoryInfo, Unknown)
			case 1:
				gpu.Failures = nil
			case 2:
				return errors.Join(flip(s, gpu), s.Raise(gpu.UUID, 79))
			}
			return s.Raise(gpu.UUID, 79)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// flip removes a GPU or brings it back.
func flip(s *State, gpu *GPU) error {
	if gpu.Removed {
		return s.Add(gpu.UUID)
	}
	return s.Remove(gpu.UUID)
}

func newStore(t *testing.T, preset string) *Store {
	t.Helper()
	store := Open(filepath.Join(t.TempDir(), "state"))
	if err := store.Create(newState(t, preset, ""), true, nil); err != nil {
		t.Fatal(err)
	}
	return store
}

func newState(t *testing.T, preset, seed string) *State {
	t.Helper()
	p, err := catalog.LookupPreset(preset)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(p, 0, seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestConcurrentProcesses has several processes change one store at random
// while this one reads it: no change is lost, and every document that a
// reader sees is whole and consistent.
func TestConcurrentProcesses(t *testing.T) {
	store := newStore(t, "h100x8")
	const writers = 4
	var processes sync.WaitGroup
	for range writers {
		processes.Go(func() {
			writer := exec.Command(os.Args[0])
			writer.Env = append(os.Environ(), writerVariable+"="+filepath.Dir(store.Path()))
			if output, err := writer.CombinedOutput(); err != nil {
				t.Errorf("a writer failed: %v\n%s", err, output)
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		processes.Wait()
		close(finished)
	}()
	last := uint64(0)
	for reading := true; reading; {
		select {
		case <-finished:
			reading = false
		default:
		}
		s, err := store.Load()
		if err != nil {
			t.Fatal(err)
		}
		if s.LastEvent() < last {
			t.Fatalf("event %d came after %d", s.LastEvent(), last)
		}
		last = s.LastEvent()
		checkConsistent(t, s)
	}
	if want := uint64(writers * rounds); last != want {
		t.Errorf("%d events after %d changes: some were lost", last, want)
	}
	leftovers, err := filepath.Glob(store.Path() + ".*")
	if err != nil || len(leftovers) > 0 {
		t.Errorf("temporary files left behind: %v, %v", leftovers, err)
	}
}

// checkConsistent checks what must hold in every state.
func checkConsistent(t *testing.T, s *State) {
	t.Helper()
	for i, gpu := range s.Present() {
		if gpu.Minor != i {
			t.Fatalf("GPU %d of the present ones has minor %d", i, gpu.Minor)
		}
		if index, ok := s.Index(gpu.UUID); !ok || index != i {
			t.Fatalf("GPU %s has index %d, %t, want %d", gpu.UUID, index, ok, i)
		}
	}
	for i := 1; i < len(s.Events); i++ {
		if s.Events[i].Sequence != s.Events[i-1].Sequence+1 {
			t.Fatalf("event %d follows %d", s.Events[i].Sequence, s.Events[i-1].Sequence)
		}
	}
}

// TestRandomChanges compares a random run of changes with a simple model.
func TestRandomChanges(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			s := newState(t, "h100x8", "")
			present := map[string]bool{}
			for i := range s.GPUs {
				present[s.GPUs[i].UUID] = true
			}
			for range 200 {
				gpu := &s.GPUs[random.IntN(len(s.GPUs))]
				var err error
				var refuse bool
				if random.IntN(2) == 0 {
					refuse = !present[gpu.UUID]
					err = s.Remove(gpu.UUID)
					present[gpu.UUID] = false
				} else {
					refuse = present[gpu.UUID]
					err = s.Add(gpu.UUID)
					present[gpu.UUID] = true
				}
				if (err != nil) != refuse {
					t.Fatalf("error %v, want one: %t", err, refuse)
				}
				checkConsistent(t, s)
				for i := range s.GPUs {
					if _, ok := s.Index(s.GPUs[i].UUID); ok != present[s.GPUs[i].UUID] {
						t.Fatalf("GPU %s: present %t, want %t", s.GPUs[i].UUID, ok, present[s.GPUs[i].UUID])
					}
				}
			}
		})
	}
}

func TestFailedChangeWritesNothing(t *testing.T) {
	store := newStore(t, "t4")
	before, err := os.ReadFile(store.Path())
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	err = store.Update(func(s *State) error {
		s.GPUs[0].Lost = true
		return refused
	})
	if !errors.Is(err, refused) {
		t.Errorf("Update = %v", err)
	}
	after, err := os.ReadFile(store.Path())
	if err != nil || string(after) != string(before) {
		t.Errorf("the file changed: %v\n%s", err, after)
	}
}

func TestLoadSeesNewDocument(t *testing.T) {
	store := newStore(t, "t4")
	reader := Open(filepath.Dir(store.Path()))
	first, err := reader.Load()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := reader.Load(); err != nil || again != first {
		t.Errorf("an unchanged document was read again: %v", err)
	}
	if err := store.Update(func(s *State) error { s.GPUs[0].Lost = true; return nil }); err != nil {
		t.Fatal(err)
	}
	second, err := reader.Load()
	if err != nil || !second.GPUs[0].Lost {
		t.Errorf("the change is not seen: %+v, %v", second, err)
	}
	if first.GPUs[0].Lost {
		t.Error("a document changed under its reader")
	}
}

func TestDamagedDocuments(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"empty":          {"", "--force"},
		"cut short":      {`{"version": 1, "gpus": [{`, "--force"},
		"newer version":  {`{"version": 99}`, "version 99"},
		"unknown query":  {`{"version": 1, "gpus": [{"failures": {"colour": "UNKNOWN"}}]}`, `unknown query "colour"`},
		"unknown result": {`{"version": 1, "gpus": [{"failures": {"name": "SAD"}}]}`, `unknown NVML error "SAD"`},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, "t4")
			if err := os.WriteFile(store.Path(), []byte(test.content), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Load(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Load = %v, want %q", err, test.want)
			}
			if err := store.Update(func(*State) error { return nil }); err == nil {
				t.Error("Update accepts it")
			}
			if err := store.Create(newState(t, "t4", ""), true, nil); err != nil {
				t.Errorf("a forced Create does not replace it: %v", err)
			}
			if _, err := store.Load(); err != nil {
				t.Errorf("Load after a forced Create = %v", err)
			}
		})
	}
}

func TestNoDocument(t *testing.T) {
	store := Open(filepath.Join(t.TempDir(), "missing"))
	if _, err := store.Load(); !errors.Is(err, ErrNoState) {
		t.Errorf("Load = %v", err)
	}
	if err := store.Update(func(*State) error { return nil }); !errors.Is(err, ErrNoState) {
		t.Errorf("Update = %v", err)
	}
}

func TestDocumentSurvives(t *testing.T) {
	store := newStore(t, "mixed")
	err := store.Update(func(s *State) error {
		s.GPUs[0].Fail(QueryMemoryInfo, Unknown)
		s.GPUs[0].FailTimes(QueryName, Unknown, 2)
		s.GPUs[0].MIG = MIGMode{Current: true}
		instance, err := s.GPUs[0].CreateInstance(19, 3)
		if err != nil {
			return err
		}
		compute, err := s.GPUs[0].CreateFullCompute(instance)
		if err != nil {
			return err
		}
		process := Process{PID: 7, Name: "python", MemoryBytes: 1 << 30, Instance: compute.UUID}
		return errors.Join(s.GPUs[0].AddProcess(process), s.Remove("2"), s.Raise("1", 31))
	})
	if err != nil {
		t.Fatal(err)
	}
	first, err := store.Load()
	if err != nil {
		t.Fatal(err)
	}
	second, err := Open(filepath.Dir(store.Path())).Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("another reader sees another state:\n%s", diff)
	}
}
