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
	"math/rand/v2"
	"slices"
	"testing"
)

// memoryModel is the rules in their plainest form: sums over everything there is.
type memoryModel struct {
	usable uint64
	used   map[uint32]uint64   // by process
	chain  map[uint32][]Cgroup // its cgroups
	limits map[Cgroup]Limit
	leaked uint64
}

func (m *memoryModel) usedBy(c Cgroup) (sum uint64) {
	for pid, bytes := range m.used {
		if slices.Contains(m.chain[pid], c) {
			sum += bytes
		}
	}
	return sum
}

// fits: with the bytes, no limit of the process' cgroups is exceeded, and all
// guarantees of others can still be kept. Nothing always fits, although a limit
// may have been set below what is used.
func (m *memoryModel) fits(cgroups []Cgroup, bytes uint64) bool {
	if bytes == 0 {
		return true
	}
	sum := m.leaked + bytes
	for _, used := range m.used {
		sum += used
	}
	for c, l := range m.limits {
		used := m.usedBy(c)
		if slices.Contains(cgroups, c) {
			if l.Hard != Unlimited && used+bytes > l.Hard {
				return false
			}
		} else {
			sum += max(used, l.Soft) - used
		}
	}
	return sum <= m.usable
}

// limit sets one, and tells whether that is possible.
func (m *memoryModel) limit(c Cgroup, soft, hard, total uint64) bool {
	if soft > hard || soft > total || hard != Unlimited && hard > total {
		return false
	}
	delete(m.limits, c)
	if soft != 0 || hard != Unlimited {
		m.limits[c] = Limit{Cgroup: c, Soft: soft, Hard: hard}
	}
	return true
}

// Whatever is done in whatever order, the GPU agrees with the model.
func TestLimitsModel(t *testing.T) {
	const total, usable = 1050, 1000
	places := [][]Cgroup{in(leftGroup, podGroup), in(rightGroup, podGroup), in(podGroup), in(otherGroup), in()}
	groups := []Cgroup{rootGroup, podGroup, leftGroup, rightGroup, otherGroup}
	var given, refused int
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 6))
		g := GPU{UUID: "GPU-0"}
		m := memoryModel{usable: usable, used: map[uint32]uint64{}, chain: map[uint32][]Cgroup{}, limits: map[Cgroup]Limit{}}
		for range 150 {
			pid := uint32(1 + random.IntN(8))
			cgroups := places[int(pid)%len(places)]
			group := groups[random.IntN(len(groups))]
			bytes := random.Uint64N(usable / 3)
			switch random.IntN(10) {
			case 0, 1:
				soft, hard := random.Uint64N(2)*random.Uint64N(total/4), random.Uint64N(total+100)
				if random.IntN(3) == 0 {
					hard = Unlimited
				}
				if got, want := g.SetLimit(group, soft, hard, total), m.limit(group, soft, hard, total); (got == nil) != want {
					t.Fatalf("seed %d: a limit of %s, %d to %d: %v, want it taken: %t", seed, group.Path, soft, hard, got, want)
				}
			case 2:
				g.Free(pid, bytes)
				m.used[pid] -= min(bytes, m.used[pid])
			case 3:
				_, runs := m.chain[pid]
				if err := g.RemoveProcess(pid); (err == nil) != runs {
					t.Fatalf("seed %d: the end of process %d, which runs: %t: %v", seed, pid, runs, err)
				}
				delete(m.used, pid)
				delete(m.chain, pid)
			case 4:
				// A cgroup goes when none of its processes is left.
				if m.usedBy(group) == 0 && random.IntN(4) == 0 {
					g.DropLimits(func(c Cgroup) bool { return c != group })
					m.leaked += m.limits[group].Soft
					delete(m.limits, group)
				}
			default:
				want := m.fits(cgroups, bytes)
				if err := g.Allocate(Process{PID: pid, Name: "p", Cgroups: cgroups}, bytes, usable); (err == nil) != want {
					t.Fatalf("seed %d: %d bytes for process %d: %v, want it given: %t", seed, bytes, pid, err, want)
				}
				if !want {
					refused++
					break
				}
				given++
				m.used[pid] += bytes
				m.chain[pid] = cgroups
			}
			m.compare(t, seed, &g)
		}
	}
	if given < 1000 || refused < 1000 {
		t.Errorf("%d allocations were given and %d refused: too few of a kind to tell", given, refused)
	}
}

func (m *memoryModel) compare(t *testing.T, seed uint64, g *GPU) {
	t.Helper()
	if len(g.Processes) != len(m.chain) || len(g.Limits) != len(m.limits) || g.Leaked != m.leaked {
		t.Fatalf("seed %d: the GPU is %+v, the model %+v", seed, g, m)
	}
	for _, p := range g.Processes {
		if p.MemoryBytes != m.used[p.PID] {
			t.Fatalf("seed %d: process %d has %d bytes, want %d", seed, p.PID, p.MemoryBytes, m.used[p.PID])
		}
	}
	for c, want := range m.limits {
		if l, used, found := g.LimitOf(c); !found || l != want || used != m.usedBy(c) {
			t.Fatalf("seed %d: the limit of %s is %+v with %d used, want %+v with %d", seed, c.Path, l, used, want, m.usedBy(c))
		}
	}
}
