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
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/state/statetest"
)

// change is what is asked for, the grant that it is for, and what is there
// before.
type change struct {
	do       func(*testing.T, *Partitions) error
	grant    gpu.Grant
	on       bool // MIG mode
	stranger bool // has an instance next to it
}

func changes() map[string]change {
	share := gpu.Grant{Form: gpu.Slice, UUID: card}
	realise := func(g gpu.Grant) func(*testing.T, *Partitions) error {
		return func(t *testing.T, p *Partitions) error {
			_, err := p.Realise(t.Context(), g, onDemand, nil)
			return err
		}
	}
	inTurn := func(all ...func(*testing.T, *Partitions) error) func(*testing.T, *Partitions) error {
		return func(t *testing.T, p *Partitions) error {
			for _, do := range all {
				if err := do(t, p); err != nil {
					return err
				}
			}
			return nil
		}
	}
	release := func(t *testing.T, p *Partitions) error { return p.Release(t.Context(), grantOf(small)) }
	return map[string]change{
		"realise":                         {do: realise(grantOf(small)), grant: grantOf(small), on: true, stranger: true},
		"realise and turn MIG mode on":    {do: realise(grantOf(small)), grant: grantOf(small)},
		"realise and release":             {do: inTurn(realise(grantOf(small)), release), grant: grantOf(small), on: true, stranger: true},
		"realise in place of a left-over": {do: inTurn(realise(grantOf(at("2g.20gb", 5, 2))), realise(grantOf(small))), grant: grantOf(small), on: true, stranger: true},
		"a share in place of left-overs":  {do: inTurn(realise(grantOf(small)), realise(grantOf(large)), realise(share)), grant: share},
	}
}

// TestEveryStep makes each step fail, on the disk and on the GPU, and the process
// die there, and goes on in a new one as the caller does. No instance is left
// that nobody holds, none of a stranger's is touched, and who holds a grant has
// its instance.
func TestEveryStep(t *testing.T) {
	for name, c := range changes() {
		for _, mode := range statetest.Modes {
			for _, heldAfter := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/held %t", name, mode, heldAfter), func(t *testing.T) {
					reached := 0
					for step := 1; ; step++ {
						faults := &statetest.Faults{At: step, Mode: mode}
						h := &hardware{faults: faults, on: c.on}
						if c.stranger {
							h.stranger(at("1g.10gb", 7, 1))
						}
						dir := filepath.Join(t.TempDir(), "marks")
						before, err := New(Options{Hardware: h, Dir: dir, BootID: "boot", FS: &statetest.Disk{Faults: faults}})
						if err == nil {
							_ = c.do(t, before)
						}
						if faults.Steps() < step {
							break
						}
						reached++
						h.faults = &statetest.Faults{}
						settle(t, newPartitions(t, h, dir, "boot"), h, c, heldAfter)
					}
					if reached < 5 {
						t.Errorf("only %d steps were made to fail", reached)
					}
				})
			}
		}
	}
}

// settle is what the caller does next: it repeats the call for a grant that is
// held, and sweeps.
func settle(t *testing.T, p *Partitions, h *hardware, c change, held bool) {
	t.Helper()
	var want []gpu.Partition
	var grants []gpu.Grant
	if c.stranger {
		want = append(want, at("1g.10gb", 7, 1))
	}
	if held {
		grants = append(grants, c.grant)
		if _, err := p.Realise(t.Context(), c.grant, onDemand, nil); err != nil {
			t.Fatalf("realising again: %v", err)
		}
		if c.grant.Form == gpu.MIG {
			want = append(want, c.grant.Partition)
		}
		if on := c.grant.Form == gpu.MIG; h.on != on {
			t.Errorf("MIG mode is on: %t, for the grant it has to be %t", h.on, on)
		}
	}
	if err := p.Sweep(t.Context(), grants); err != nil {
		t.Fatalf("sweeping: %v", err)
	}
	var got []gpu.Partition
	for _, i := range h.instances {
		if i.UUID == "" {
			t.Errorf("half an instance is left: %+v", i)
		}
		got = append(got, i.Partition)
	}
	if !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
	if p.Made(card, at("1g.10gb", 7, 1)) {
		t.Error("the stranger's instance is taken for one that was made here")
	}
}

// After an error that is not the process' end, nothing is left, not even a claim
// to the place.
func TestFailureLeavesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   statetest.Mode
		halves bool
	}{
		"not made":              {mode: statetest.Fail},
		"made and undone":       {mode: statetest.FailAfter},
		"made half, not undone": {mode: statetest.FailAfter, halves: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hardware{faults: &statetest.Faults{}, on: true, halves: tc.halves}
			p := newPartitions(t, h, filepath.Join(t.TempDir(), "marks"), "boot")
			h.faults = &statetest.Faults{At: 1, Mode: tc.mode} // of the GPU alone
			if _, err := p.Realise(t.Context(), grantOf(small), onDemand, nil); !errors.Is(err, statetest.ErrInjected) {
				t.Fatalf("error: %v", err)
			}
			if len(h.instances) > 0 || p.Made(card, small) {
				t.Fatalf("left: %+v, marked: %t", h.instances, p.Made(card, small))
			}
			stranger := h.stranger(small)
			if err := p.Sweep(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if len(h.instances) != 1 || h.instances[0] != stranger {
				t.Errorf("left are %+v, want the stranger", h.instances)
			}
		})
	}
}
