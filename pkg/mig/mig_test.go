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

package mig

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/nvidia"
	"github.com/memslice/memslice/pkg/state/statetest"
)

// newPartitions is a process of the plugin in a boot.
func newPartitions(t *testing.T, h *hardware, dir, boot string) *Partitions {
	t.Helper()
	p, err := New(Options{Hardware: h, Dir: dir, BootID: boot, FS: &statetest.Disk{Faults: h.faults}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var (
	onDemand = gpu.Device{Form: gpu.MIG, MIGOnDemand: true}
	small    = at("1g.10gb", 6, 1)
	large    = at("4g.40gb", 0, 4)
)

func TestRealise(t *testing.T) {
	existing := grantOf(small)
	admin := grantOf(small)
	admin.AdminAccess = true
	share := gpu.Grant{Form: gpu.Slice, UUID: card}
	adminShare := share
	adminShare.AdminAccess = true
	for name, tc := range map[string]struct {
		mode    bool                         // of the GPU before
		before  func(*Partitions, *hardware) // what is there
		grant   func() gpu.Grant
		device  gpu.Device
		others  []gpu.Grant
		want    string // the UUID of the instance; "new" for one made now
		on      bool   // the mode after
		left    int    // instances after
		problem string
	}{
		"made in MIG mode":          {mode: true, grant: func() gpu.Grant { return grantOf(small) }, want: "new", on: true, left: 1},
		"the mode is turned on":     {grant: func() gpu.Grant { return grantOf(small) }, device: onDemand, want: "new", on: true, left: 1},
		"the mode is kept":          {grant: func() gpu.Grant { return grantOf(small) }, problem: "is not in MIG mode"},
		"beside that of a claim":    {mode: true, before: makes(large), others: []gpu.Grant{grantOf(large)}, grant: func() gpu.Grant { return grantOf(small) }, want: "new", on: true, left: 2},
		"adopted":                   {mode: true, before: makes(small), grant: func() gpu.Grant { return grantOf(small) }, want: "MIG-1", on: true, left: 1},
		"a left-over is in the way": {mode: true, before: makes(at("2g.20gb", 6, 2)), grant: func() gpu.Grant { return grantOf(small) }, want: "new", on: true, left: 1},
		"a stranger is in the way": {
			mode: true, before: func(_ *Partitions, h *hardware) { h.stranger(at("3g.40gb", 4, 4)) },
			grant: func() gpu.Grant { return grantOf(small) }, on: true, left: 1, problem: "memslice did not make it",
		},
		"a stranger of the same kind is not adopted": {
			mode: true, before: func(_ *Partitions, h *hardware) { h.stranger(small) },
			grant: func() gpu.Grant { return grantOf(small) }, on: true, left: 1, problem: "memslice did not make it",
		},
		"another claim's is in the way": {
			mode: true, before: makes(at("2g.20gb", 6, 2)), others: []gpu.Grant{grantOf(at("2g.20gb", 6, 2))},
			grant: func() gpu.Grant { return grantOf(small) }, on: true, left: 1, problem: "held by another claim",
		},
		"an existing one": {
			mode: true, before: func(_ *Partitions, h *hardware) { existing.Existing = h.stranger(small).UUID },
			grant: func() gpu.Grant { return existing }, want: "MIG-1", on: true, left: 1,
		},
		"an existing one that is gone": {
			mode: true, before: func(*Partitions, *hardware) { existing.Existing = "MIG-9" },
			grant: func() gpu.Grant { return existing }, on: true, problem: "has no MIG instance MIG-9 any more",
		},
		"admin access to a claim's":      {mode: true, before: makes(small), grant: func() gpu.Grant { return admin }, want: "MIG-1", on: true, left: 1},
		"admin access to nothing":        {mode: true, grant: func() gpu.Grant { return admin }, on: true, problem: "for admin access"},
		"a share needs no MIG mode":      {mode: true, grant: func() gpu.Grant { return share }, device: onDemand},
		"a share ends left-overs":        {mode: true, before: makes(small), grant: func() gpu.Grant { return share }, device: onDemand},
		"a share of a GPU that is fixed": {grant: func() gpu.Grant { return share }},
		"admin access changes no mode":   {mode: true, before: makes(small), grant: func() gpu.Grant { return adminShare }, device: onDemand, on: true, left: 1},
		"a share beside a stranger": {
			mode: true, before: func(_ *Partitions, h *hardware) { h.stranger(small) },
			grant: func() gpu.Grant { return share }, device: onDemand, on: true, left: 1, problem: "memslice did not make it",
		},
		"a share beside a claim's": {
			mode: true, before: makes(small), others: []gpu.Grant{grantOf(small)},
			grant: func() gpu.Grant { return share }, device: onDemand, on: true, left: 1, problem: "held by another claim",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hardware{faults: &statetest.Faults{}, on: tc.mode}
			p := newPartitions(t, h, filepath.Join(t.TempDir(), "marks"), "boot")
			if tc.before != nil {
				tc.before(p, h)
			}
			made := h.made
			got, err := p.Realise(t.Context(), tc.grant(), tc.device, tc.others)
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) || !strings.Contains(err.Error(), card) {
					t.Errorf("error: %v, want one with %q and the GPU", err, tc.problem)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			switch {
			case tc.want == "new" && (h.made != made+1 || got.UUID == "" || got.Partition != tc.grant().Partition || !p.Made(card, got.Partition)):
				t.Errorf("got %+v, want one that is made now", got)
			case tc.want != "new" && (got.UUID != tc.want || h.made != made):
				t.Errorf("got %+v, want %q", got, tc.want)
			}
			if h.on != tc.on || len(h.instances) != tc.left {
				t.Errorf("after it MIG mode is on: %t, with %d instances, want %t and %d", h.on, len(h.instances), tc.on, tc.left)
			}
		})
	}
}

// makes has an instance there that was made here.
func makes(place gpu.Partition) func(*Partitions, *hardware) {
	return func(p *Partitions, h *hardware) {
		if err := p.marks.put(card, place); err != nil {
			panic(err)
		}
		h.stranger(place)
	}
}

func TestRelease(t *testing.T) {
	h := &hardware{faults: &statetest.Faults{}, on: true}
	dir := filepath.Join(t.TempDir(), "marks")
	p := newPartitions(t, h, dir, "boot")
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	realise := func(place gpu.Partition) {
		t.Helper()
		_, err := p.Realise(t.Context(), grantOf(place), gpu.Device{}, nil)
		ok(err)
	}
	ok(p.Release(t.Context(), grantOf(small))) // that was never made
	realise(small)
	stranger := h.stranger(large)
	admin := grantOf(small)
	admin.AdminAccess = true
	existing := grantOf(large)
	existing.Existing = stranger.UUID
	for _, g := range []gpu.Grant{admin, existing, grantOf(large), {Form: gpu.Slice, UUID: card}} {
		ok(p.Release(t.Context(), g))
	}
	if len(h.instances) != 2 {
		t.Fatalf("left are %+v, want both instances", h.instances)
	}

	// What is in use stays, and is known.
	h.busy = true
	for name, err := range map[string]error{"Release": p.Release(t.Context(), grantOf(small)), "Sweep": p.Sweep(t.Context(), nil)} {
		if !errors.Is(err, errBusy) {
			t.Errorf("%s of an instance in use: error %v", name, err)
		}
	}
	h.busy = false

	// Out of reach there is nothing to destroy, until it is back.
	for _, h.absent = range []error{nvidia.ErrDriverUnavailable, nvidia.ErrGPUUnavailable} {
		ok(p.Release(t.Context(), grantOf(small)))
		ok(p.Sweep(t.Context(), nil))
		if !p.Made(card, small) {
			t.Fatal("forgotten, although it may come back")
		}
	}
	h.absent = nil
	// None of these holds it.
	another, static := grantOf(small), grantOf(small)
	another.UUID, static.Existing = "GPU-00000002-0000-4000-8000-000000000000", stranger.UUID
	ok(newPartitions(t, h, dir, "boot").Sweep(t.Context(), []gpu.Grant{{Form: gpu.Slice, UUID: card}, admin, static, another}))
	if len(h.instances) != 1 || h.instances[0].UUID != stranger.UUID {
		t.Errorf("left are %+v, want the stranger", h.instances)
	}
	if marks, _ := os.ReadDir(dir); len(marks) != 0 {
		t.Errorf("marks are left: %v", marks)
	}
}

// One mark or GPU with a problem is no reason to leave the others.
func TestSweepGoesOn(t *testing.T) {
	h := &hardware{faults: &statetest.Faults{}, on: true}
	dir := filepath.Join(t.TempDir(), "marks")
	p := newPartitions(t, h, dir, "boot")
	for _, place := range []gpu.Partition{at("1g.10gb", 0, 1), at("1g.10gb", 1, 1), at("1g.10gb", 2, 1)} {
		if _, err := p.Realise(t.Context(), grantOf(place), gpu.Device{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "a.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.faults = &statetest.Faults{At: 1, Mode: statetest.Fail}
	err := p.Sweep(t.Context(), nil)
	if !errors.Is(err, statetest.ErrInjected) || !strings.Contains(err.Error(), "a.json") {
		t.Errorf("error: %v, want that of the GPU and that about a.json", err)
	}
	if len(h.instances) != 1 {
		t.Errorf("left are %+v, want the one that could not be destroyed", h.instances)
	}
}

// During an update two processes share the directory. What one makes the other
// knows at once, and never takes for a stranger's.
func TestTwoProcesses(t *testing.T) {
	h := &hardware{faults: &statetest.Faults{}, on: true}
	dir := filepath.Join(t.TempDir(), "marks")
	a, b := newPartitions(t, h, dir, "boot"), newPartitions(t, h, dir, "boot")
	if _, err := a.Realise(t.Context(), grantOf(large), gpu.Device{}, nil); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for _, p := range []*Partitions{a, b} {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if !p.Made(card, large) {
					t.Error("an instance that is there all the time was not known for a moment")
					return
				}
			}
		})
	}
	for i := range 100 {
		maker, other := a, b
		if i%2 == 1 {
			maker, other = b, a
		}
		made, err := maker.Realise(t.Context(), grantOf(small), gpu.Device{}, []gpu.Grant{grantOf(large)})
		if err != nil || !other.Made(card, small) {
			t.Fatalf("made %+v, %v; the other process knows: %t", made, err, other.Made(card, small))
		}
		if again, err := other.Realise(t.Context(), grantOf(small), gpu.Device{}, nil); err != nil || again != made {
			t.Fatalf("the other process made %+v of %+v, %v", again, made, err)
		}
		if err := other.Release(t.Context(), grantOf(small)); err != nil || maker.Made(card, small) {
			t.Fatalf("released by the other process: %v; still known: %t", err, maker.Made(card, small))
		}
	}
	close(stop)
	readers.Wait()
}

func TestNewWithoutDirectory(t *testing.T) {
	blocker := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Hardware: &hardware{}, Dir: filepath.Join(blocker, "marks"), BootID: "boot"}); err == nil || !strings.Contains(err.Error(), blocker) {
		t.Errorf("error: %v, want one with the path", err)
	}
}

// What an earlier boot has marked, and what is no mark, is no claim to anything.
func TestVoidMarks(t *testing.T) {
	h := &hardware{faults: &statetest.Faults{}, on: true}
	dir := filepath.Join(t.TempDir(), "marks")
	before := newPartitions(t, h, dir, "boot 1")
	if _, err := before.Realise(t.Context(), grantOf(small), gpu.Device{}, nil); err != nil {
		t.Fatal(err)
	}
	h.instances = nil // the machine boots
	for name, content := range map[string]string{"odd.json": "{", "moved.json": `{"gpu":"` + card + `","profile":"1g.10gb","start":6,"size":1,"bootID":"boot 2"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stranger := h.stranger(small)
	p := newPartitions(t, h, dir, "boot 2")
	if p.Made(card, small) {
		t.Error("an instance is taken for one that was made in an earlier boot")
	}
	if err := p.Sweep(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if len(h.instances) != 1 || h.instances[0] != stranger {
		t.Errorf("left are %+v, want the stranger", h.instances)
	}
	if marks, _ := os.ReadDir(dir); len(marks) != 0 {
		t.Errorf("void marks are left: %v", marks)
	}
}

func TestFileNames(t *testing.T) {
	for _, p := range []gpu.Partition{at("../../etc/passwd", 0, 1), at("1g.10gb+me", 3, 1), at("", 0, 0)} {
		if name := fileName("GPU/../x", p); strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, ".") {
			t.Errorf("file name %q", name)
		}
	}
	if fileName(card, at("1g.24gb+me", 0, 1)) == fileName(card, at("1g.24gb-me", 0, 1)) {
		t.Error("two profiles share a mark")
	}
}
