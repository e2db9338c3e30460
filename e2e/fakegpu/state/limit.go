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
	"math"
	"slices"
)

// Limit is what the processes of a cgroup, and of those below it, can have of a
// GPU's memory, in bytes.
type Limit struct {
	Cgroup Cgroup `json:"cgroup"`
	// Soft is guaranteed, whoever else asks for memory. Hard is the most there
	// is; Unlimited for no limit.
	Soft uint64 `json:"soft,omitempty"`
	Hard uint64 `json:"hard"`
}

// Unlimited is NVML_DEVICE_MEMORY_LIMIT_MAX.
const Unlimited = math.MaxUint64

// SetLimit limits a cgroup. total is the GPU's memory. Neither a guarantee nor a
// limit removes what was set.
func (g *GPU) SetLimit(c Cgroup, soft, hard, total uint64) error {
	switch {
	case g.MIG.Current:
		return refuse(NotSupported, "GPU %s is in MIG mode: cgroups have no limits there", g.UUID)
	case soft > hard || soft > total || hard > total && hard != Unlimited:
		return refuse(InvalidArgument, "GPU %s: limits of %d and %d bytes are not possible with %d in all", g.UUID, soft, hard, total)
	}
	g.Limits = slices.DeleteFunc(g.Limits, func(l Limit) bool { return l.Cgroup.same(c) })
	if soft > 0 || hard != Unlimited {
		g.Limits = append(g.Limits, Limit{Cgroup: c, Soft: soft, Hard: hard})
	}
	return nil
}

// LimitOf is the limit of a cgroup, if it has one, and what its processes have.
func (g *GPU) LimitOf(c Cgroup) (limit Limit, used uint64, found bool) {
	at := slices.IndexFunc(g.Limits, func(l Limit) bool { return l.Cgroup.same(c) })
	if at < 0 {
		return Limit{}, 0, false
	}
	return g.Limits[at], g.usedBy(c), true
}

// DropLimits forgets the limits of cgroups that are no more. What was guaranteed
// to one stays guaranteed to nobody, until the driver is loaded again.
func (g *GPU) DropLimits(exists func(Cgroup) bool) {
	g.Limits = slices.DeleteFunc(g.Limits, func(l Limit) bool {
		gone := !exists(l.Cgroup)
		if gone {
			g.Leaked += l.Soft
		}
		return gone
	})
}

func (g *GPU) usedBy(c Cgroup) (used uint64) {
	for _, p := range g.Processes {
		if slices.ContainsFunc(p.Cgroups, c.same) {
			used += p.MemoryBytes
		}
	}
	return used
}

// Allocate gives a process more memory, where the limits of its cgroups and what
// is left of usable allow it, in bytes. A process that is new to the GPU is added.
func (g *GPU) Allocate(p Process, bytes, usable uint64) error {
	at := slices.IndexFunc(g.Processes, func(other Process) bool { return other.PID == p.PID && other.Instance == p.Instance })
	if at >= 0 {
		p = g.Processes[at]
	} else {
		p.MemoryBytes = 0
	}
	if left := g.Left(p.Cgroups, usable); bytes > left {
		return refuse(InsufficientMemory, "%d bytes are left of GPU %s for process %d", left, g.UUID, p.PID)
	}
	p.MemoryBytes += bytes
	if at >= 0 {
		g.Processes[at] = p
		return nil
	}
	if err := g.AddProcess(p); err != nil {
		return refuse(NotSupported, "%v", err)
	}
	return nil
}

// Left is what a process of those cgroups can still allocate.
func (g *GPU) Left(cgroups []Cgroup, usable uint64) uint64 {
	taken := g.Leaked
	for _, p := range g.Processes {
		taken += p.MemoryBytes
	}
	left := uint64(Unlimited)
	for _, l := range g.Limits {
		used := g.usedBy(l.Cgroup)
		if slices.ContainsFunc(cgroups, l.Cgroup.same) {
			left = min(left, l.Hard-min(used, l.Hard))
		} else if l.Soft > used {
			taken += l.Soft - used
		}
	}
	return min(left, usable-min(taken, usable))
}

// Free takes memory back from a process.
func (g *GPU) Free(pid uint32, bytes uint64) {
	for i := range g.Processes {
		if p := &g.Processes[i]; p.PID == pid {
			p.MemoryBytes -= min(bytes, p.MemoryBytes)
		}
	}
}
