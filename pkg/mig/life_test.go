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
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/nvidia"
	"github.com/memslice/memslice/pkg/state/statetest"
)

// life is a GPU with claims, administrators, failures and boots.
type life struct {
	*testing.T
	random *rand.Rand
	h      *hardware
	dir    string
	boot   int
	p      *Partitions

	held      map[gpu.Partition]bool
	shared    bool            // a claim holds a share of the GPU
	strangers map[string]bool // by UUID
}

// TestRandomLives has all that can happen to a GPU happen in any order, over and
// over, and compares what is there with what claims hold.
func TestRandomLives(t *testing.T) {
	places := []gpu.Partition{
		at("1g.10gb", 0, 1), at("1g.10gb+me", 0, 1), at("1g.10gb", 1, 1), at("2g.20gb", 0, 2), at("2g.20gb", 2, 2),
		at("3g.40gb", 4, 4), at("1g.10gb", 6, 1), at("7g.80gb", 0, 8),
	}
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			l := &life{
				T: t, random: rand.New(rand.NewPCG(seed, 1)), h: &hardware{faults: &statetest.Faults{}},
				dir: filepath.Join(t.TempDir(), "marks"), held: map[gpu.Partition]bool{}, strangers: map[string]bool{},
			}
			l.start()
			for range 300 {
				l.step(places[l.random.IntN(len(places))])
				if err := l.p.Sweep(t.Context(), l.grants()); err != nil {
					t.Fatal(err)
				}
				l.compare()
			}
		})
	}
}

func (l *life) step(place gpu.Partition) {
	taken := slices.ContainsFunc(l.h.instances, func(i gpu.Instance) bool { return i.Overlaps(place) })
	switch l.random.IntN(12) {
	case 0, 1, 2, 3:
		l.claim(place)
	case 4, 5:
		l.release(place)
	case 6:
		l.share()
	case 7:
		l.shared = false
	case 8:
		if l.h.on && !taken {
			l.strangers[l.h.stranger(place).UUID] = true
		}
	case 9:
		l.h.instances = slices.DeleteFunc(l.h.instances, func(i gpu.Instance) bool { return l.strangers[i.UUID] })
	case 10: // the machine boots
		l.boot++
		l.h.instances, l.h.on = nil, l.random.IntN(2) == 0
		l.start()
		l.restore()
	case 11: // the GPU is reset
		l.h.instances = nil
		l.restore()
	}
}

// start is that of a process of the plugin.
func (l *life) start() {
	l.h.faults = &statetest.Faults{}
	l.p = newPartitions(l.T, l.h, l.dir, fmt.Sprint("boot ", l.boot))
}

// interrupted has something go wrong in an operation, or the process end there.
// A new one goes on.
func (l *life) interrupted(operation func(*Partitions) error) {
	l.h.faults = &statetest.Faults{At: 2 + l.random.IntN(8), Mode: statetest.Modes[l.random.IntN(len(statetest.Modes))]}
	_ = operation(newPartitions(l.T, l.h, l.dir, fmt.Sprint("boot ", l.boot)))
	l.start()
}

// claim gives a place to a claim, if nobody has it. Some claims end in the middle
// of that.
func (l *life) claim(place gpu.Partition) {
	if l.shared || slices.ContainsFunc(slices.Collect(maps.Keys(l.held)), place.Overlaps) {
		return
	}
	others := l.grants()
	realise := func(p *Partitions) error {
		i, err := p.Realise(l.Context(), grantOf(place), onDemand, others)
		if err == nil && (i.UUID == "" || i.Partition != place || l.strangers[i.UUID]) {
			l.Fatalf("realised %+v at %+v", i, place)
		}
		return err
	}
	if l.random.IntN(3) == 0 {
		l.interrupted(realise)
		if l.random.IntN(2) == 0 {
			return
		}
	}
	blocked := slices.ContainsFunc(l.h.instances, func(i gpu.Instance) bool { return l.strangers[i.UUID] && i.Overlaps(place) })
	err := realise(l.p)
	if blocked != (err != nil) {
		l.Fatalf("realising %v: %v, while a stranger is in the way: %t", place, err, blocked)
	}
	if err == nil {
		l.held[place] = true
	}
}

// release ends a claim, also while the GPU cannot be asked.
func (l *life) release(place gpu.Partition) {
	if !l.held[place] {
		return
	}
	release := func(p *Partitions) error { return p.Release(l.Context(), grantOf(place)) }
	if l.random.IntN(3) == 0 {
		l.interrupted(release)
	}
	l.h.absent = []error{nil, nil, nvidia.ErrDriverUnavailable, nvidia.ErrGPUUnavailable}[l.random.IntN(4)]
	if err := release(l.p); err != nil {
		l.Fatal(err)
	}
	delete(l.held, place)
	l.h.absent = nil
}

// share gives a share of the GPU to a claim, for which it has to leave MIG mode.
func (l *life) share() {
	if len(l.held) > 0 {
		return
	}
	realise := func(p *Partitions) error {
		_, err := p.Realise(l.Context(), gpu.Grant{Form: gpu.Slice, UUID: card}, onDemand, nil)
		return err
	}
	if l.random.IntN(3) == 0 {
		l.interrupted(realise)
	}
	blocked := slices.ContainsFunc(l.h.instances, func(i gpu.Instance) bool { return l.strangers[i.UUID] })
	err := realise(l.p)
	if blocked != (err != nil) || err == nil && l.h.on {
		l.Fatalf("sharing: %v, while a stranger is in the way: %t; MIG mode is on: %t", err, blocked, l.h.on)
	}
	l.shared = l.shared || err == nil
}

// restore makes again what claims hold.
func (l *life) restore() {
	for place := range l.held {
		if _, err := l.p.Realise(l.Context(), grantOf(place), onDemand, l.grants()); err != nil {
			l.Fatal(err)
		}
	}
}

func (l *life) grants() []gpu.Grant {
	var grants []gpu.Grant
	for place := range l.held {
		grants = append(grants, grantOf(place))
	}
	return grants
}

// compare: each claim has its instance and its mark, and there is no other of
// either, but for the strangers.
func (l *life) compare() {
	l.Helper()
	ours := 0
	for _, i := range l.h.instances {
		if l.strangers[i.UUID] {
			continue
		}
		ours++
		if !l.held[i.Partition] || i.UUID == "" || !l.p.Made(card, i.Partition) {
			l.Fatalf("instance %+v is left, held are %v", i, l.held)
		}
	}
	if ours != len(l.held) {
		l.Fatalf("%d instances for %d grants", ours, len(l.held))
	}
	if files, err := os.ReadDir(l.dir); err != nil || len(files) != len(l.held) {
		l.Fatalf("marks %v for grants %v, %v", files, l.held, err)
	}
}
