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
	"math"
	"os"
	"path/filepath"
	"strings"
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

// A refused allocation changes nothing, and a process' end gives everything back.
func TestAllocateAndEnd(t *testing.T) {
	const usable = 100
	g := GPU{UUID: "GPU-0", Limits: []Limit{{Cgroup: podGroup, Hard: 60}}}
	left, right := Process{PID: 1, Cgroups: in(leftGroup, podGroup)}, Process{PID: 2, Cgroups: in(rightGroup, podGroup)}
	if got := resultOf(g.Allocate(left, 61, usable)); got != InsufficientMemory || len(g.Processes) != 0 {
		t.Errorf("%v, processes are %+v", got, g.Processes)
	}
	left.MemoryBytes = 50 // only what is allocated counts
	for _, bytes := range []uint64{0, 20, 15} {
		if err := g.Allocate(left, bytes, usable); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.Processes) != 1 || g.Processes[0].MemoryBytes != 35 {
		t.Errorf("processes are %+v", g.Processes)
	}
	if got := resultOf(g.Allocate(right, 26, usable)); got != InsufficientMemory {
		t.Errorf("the other of the pod: %v", got)
	}
	g.Free(left.PID, 10)
	g.Free(99, 10) // nobody
	if err := g.Allocate(right, 35, usable); err != nil {
		t.Error(err)
	}
	if err := g.RemoveProcess(left.PID); err != nil {
		t.Error(err)
	}
	if got := g.Left(right.Cgroups, usable); got != 25 {
		t.Errorf("left are %d, want what the process that ended had", got)
	}
	g.Free(right.PID, math.MaxUint64)
	if got := g.Left(right.Cgroups, usable); got != 60 {
		t.Errorf("left are %d, want all", got)
	}
	g.MIG.Current = true
	if got := resultOf(g.Allocate(left, 1, usable)); got != NotSupported || len(g.Processes) != 1 {
		t.Errorf("in MIG mode: %v, %+v", got, g.Processes)
	}
}

func TestStoreCgroup(t *testing.T) {
	dir, plain := t.TempDir(), t.TempDir()
	store := Open(dir)
	file := filepath.Join(plain, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Cgroup(plain); err == nil || !strings.Contains(err.Error(), "no cgroup file system") {
		t.Errorf("a directory: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, AnyDirectory), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := store.Cgroup(plain)
	if err != nil || before.Path != plain {
		t.Errorf("where any directory does: %+v, %v", before, err)
	}
	for _, path := range []string{file, plain + "-gone", ""} {
		if _, err := store.Cgroup(path); err == nil {
			t.Errorf("%q is a cgroup", path)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(plain, link); err != nil {
		t.Fatal(err)
	}
	if after, err := store.Cgroup(link); err != nil || !after.same(before) {
		t.Errorf("by another path: %+v, %v", after, err)
	}
}
