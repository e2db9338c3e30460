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
	"math/rand/v2"
	"testing"
)

// Cgroups of a pod with two containers, and of another.
var (
	rootGroup  = Cgroup{Path: "/", Inode: 1}
	podGroup   = Cgroup{Path: "/pod", Inode: 2}
	leftGroup  = Cgroup{Path: "/pod/left", Inode: 3}
	rightGroup = Cgroup{Path: "/pod/right", Inode: 4}
	otherGroup = Cgroup{Path: "/other", Inode: 5}
)

func in(groups ...Cgroup) []Cgroup { return append(groups, rootGroup) }

func resultOf(err error) Result {
	var refusal *Refusal
	switch {
	case err == nil:
		return Success
	case errors.As(err, &refusal):
		return refusal.Result
	}
	return Unknown
}

func TestSetLimit(t *testing.T) {
	const total = 100
	for name, tc := range map[string]struct {
		soft, hard uint64
		mig        bool
		want       Result
		limits     int
	}{
		"a limit":                  {hard: 40, limits: 1},
		"all there is":             {hard: total, limits: 1},
		"a guarantee as well":      {soft: 40, hard: 40, limits: 1},
		"a guarantee and no limit": {soft: 40, hard: Unlimited, limits: 1},
		"neither":                  {hard: Unlimited},
		"soft above hard":          {soft: 41, hard: 40, want: InvalidArgument, limits: 1},
		"more than there is":       {hard: total + 1, want: InvalidArgument, limits: 1},
		"a guarantee of more":      {soft: total + 1, hard: Unlimited, want: InvalidArgument, limits: 1},
		"in MIG mode":              {hard: 40, mig: true, want: NotSupported, limits: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := GPU{Limits: []Limit{{Cgroup: podGroup, Hard: 7}}}
			g.MIG.Current = tc.mig
			if got := resultOf(g.SetLimit(podGroup, tc.soft, tc.hard, total)); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if len(g.Limits) != tc.limits {
				t.Errorf("limits are %+v", g.Limits)
			}
			limit, _, found := g.LimitOf(podGroup)
			if tc.want == Success && found && (limit.Hard != tc.hard || limit.Soft != tc.soft) || tc.want != Success && limit.Hard != 7 {
				t.Errorf("the limit is %+v", limit)
			}
		})
	}
}

func TestAllocate(t *testing.T) {
	const usable = 100
	left, right, other := Process{PID: 1, Cgroups: in(leftGroup, podGroup)}, Process{PID: 2, Cgroups: in(rightGroup, podGroup)}, Process{PID: 3, Cgroups: in(otherGroup)}
	hard := func(c Cgroup, bytes uint64) Limit { return Limit{Cgroup: c, Hard: bytes} }
	with := func(p Process, bytes uint64) Process { p.MemoryBytes = bytes; return p }
	for name, tc := range map[string]struct {
		limits    []Limit
		leaked    uint64
		processes []Process
		by        Process
		most      uint64 // that it gets
	}{
		"no limits":                               {by: left, most: 100},
		"beside another":                          {processes: []Process{with(other, 30)}, by: left, most: 70},
		"its own limit":                           {limits: []Limit{hard(leftGroup, 40)}, by: left, most: 40},
		"its own limit, partly used":              {limits: []Limit{hard(leftGroup, 40)}, processes: []Process{with(left, 15)}, by: left, most: 25},
		"that of the pod":                         {limits: []Limit{hard(leftGroup, 40), hard(rightGroup, 40), hard(podGroup, 40)}, processes: []Process{with(right, 25)}, by: left, most: 15},
		"somebody else's":                         {limits: []Limit{hard(otherGroup, 10)}, by: left, most: 100},
		"less is left than the limit":             {limits: []Limit{hard(leftGroup, 40)}, processes: []Process{with(other, 80)}, by: left, most: 20},
		"a limit below what is used":              {limits: []Limit{hard(leftGroup, 10)}, processes: []Process{with(left, 15)}, by: left, most: 0},
		"what is guaranteed to another":           {limits: []Limit{{Cgroup: otherGroup, Soft: 30, Hard: Unlimited}}, by: left, most: 70},
		"what is guaranteed to another, and used": {limits: []Limit{{Cgroup: otherGroup, Soft: 30, Hard: Unlimited}}, processes: []Process{with(other, 20)}, by: left, most: 70},
		"what is guaranteed to itself":            {limits: []Limit{{Cgroup: leftGroup, Soft: 30, Hard: Unlimited}}, by: left, most: 100},
		"what is guaranteed to nobody any more":   {leaked: 60, by: left, most: 40},
	} {
		t.Run(name, func(t *testing.T) {
			make := func() GPU {
				return GPU{UUID: "GPU-0", Limits: tc.limits, Leaked: tc.leaked, Processes: append([]Process(nil), tc.processes...)}
			}
			g := make()
			if got := g.Left(tc.by.Cgroups, usable); got != tc.most {
				t.Errorf("left are %d, want %d", got, tc.most)
			}
			if got := resultOf(g.Allocate(tc.by, tc.most+1, usable)); got != InsufficientMemory {
				t.Errorf("%d bytes: %v", tc.most+1, got)
			}
			g = make()
			if got := resultOf(g.Allocate(tc.by, tc.most, usable)); got != Success {
				t.Errorf("%d bytes: %v", tc.most, got)
			}
		})
	}
}

func TestDropLimits(t *testing.T) {
	g := GPU{Limits: []Limit{{Cgroup: leftGroup, Hard: 40}, {Cgroup: rightGroup, Soft: 30, Hard: 40}, {Cgroup: otherGroup, Hard: 40}}}
	g.DropLimits(func(c Cgroup) bool { return c.same(otherGroup) })
	if len(g.Limits) != 1 || !g.Limits[0].Cgroup.same(otherGroup) {
		t.Errorf("left are %+v", g.Limits)
	}
	if g.Leaked != 30 {
		t.Errorf("leaked are %d, want the guarantee that was not taken back", g.Leaked)
	}
	s := State{GPUs: []GPU{g}}
	s.UnloadDriver()
	if s.GPUs[0].Leaked != 0 || len(s.GPUs[0].Limits) != 0 {
		t.Errorf("after the driver was unloaded: %+v", s.GPUs[0])
	}
}

// Whatever is asked for, no limit is exceeded and nothing is given twice.
func TestLimitsHold(t *testing.T) {
	const usable = 1000
	random := rand.New(rand.NewPCG(5, 6))
	places := [][]Cgroup{in(leftGroup, podGroup), in(rightGroup, podGroup), in(otherGroup), in()}
	for range 200 {
		g := GPU{UUID: "GPU-0"}
		for _, c := range []Cgroup{rootGroup, podGroup, leftGroup, rightGroup, otherGroup} {
			if random.IntN(2) == 0 {
				if err := g.SetLimit(c, 0, random.Uint64N(usable), usable); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 100 {
			n := random.IntN(len(places))
			p := Process{PID: uint32(1 + n), Name: "p", Cgroups: places[n]}
			before := g.Left(p.Cgroups, usable)
			bytes := random.Uint64N(usable / 2)
			if random.IntN(3) == 0 {
				g.Free(p.PID, bytes)
			} else if err := g.Allocate(p, bytes, usable); (err == nil) != (bytes <= before) {
				t.Fatalf("%d bytes of %d: %v", bytes, before, err)
			}
			var sum uint64
			for _, p := range g.Processes {
				sum += p.MemoryBytes
			}
			if sum > usable {
				t.Fatalf("%d bytes are in use of %d", sum, usable)
			}
			for _, l := range g.Limits {
				if _, used, _ := g.LimitOf(l.Cgroup); used > l.Hard {
					t.Fatalf("%s has %d of %d", l.Cgroup.Path, used, l.Hard)
				}
			}
		}
	}
}
