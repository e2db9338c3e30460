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

package claim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/pkg/gpu"
)

// allCompute is the percentage of a GPU's multiprocessors that there is.
const allCompute = 100

// Holding is a grant that a claim has already.
type Holding struct {
	UID       types.UID
	Namespace string
	Name      string
	Grant     gpu.Grant
}

// HeldError says that a GPU does not have what a plan was granted of it.
type HeldError struct {
	By   []Holding // what is in the way
	text string
}

// Error names the claim, the GPU, what is in the way, and what to do.
func (e *HeldError) Error() string { return e.text }

// Check refuses a plan that would use a GPU twice: shares beyond what the GPU
// offers, MIG partitions that overlap, one form beside another. That it was
// allocated is no proof: claims of pods that were force-deleted are still held
// here while their containers run.
//
// held are the grants on the plan's GPUs, in any order; the plan's own claim may
// be among them and does not count. The error is a *HeldError where a GPU is in
// use.
func Check(p Plan, held []Holding, devices Devices) error {
	taken := make(map[string][]Holding)
	for _, h := range held {
		if h.UID != p.UID && !h.Grant.AdminAccess {
			taken[h.Grant.UUID] = append(taken[h.Grant.UUID], h)
		}
	}
	for _, g := range p.Grants {
		if g.AdminAccess {
			continue
		}
		device, ok := devices.Device(g.Pool, g.Device)
		if !ok {
			return fmt.Errorf("claim %s, request %q: %w", p, g.Request, NoSuchDevice(g.Pool, g.Device))
		}
		others := against(g, taken[g.UUID])
		if obstacle := fits(g, device, others); obstacle != "" {
			return &HeldError{By: others, text: fmt.Sprintf("claim %s, request %q: cannot have %s of GPU %s: %s; it is held by %s. The kubelet tries again, which succeeds once they have ended: look for pods that were force-deleted and still run on this node, or delete this pod so that its replacement is allocated what is free",
				p, g.Request, part(g), g.UUID, obstacle, holders(others))}
		}
		taken[g.UUID] = append(taken[g.UUID], Holding{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Grant: g})
	}
	return nil
}

// against is what of a GPU counts against one more grant: all but the MIG
// partitions that a partition has for neighbours.
func against(g gpu.Grant, taken []Holding) []Holding {
	var others []Holding
	for _, h := range taken {
		if g.Form != gpu.MIG || h.Grant.Form != gpu.MIG || g.Conflicts(h.Grant) {
			others = append(others, h)
		}
	}
	return others
}

// fits says what is in the way of one more grant on a GPU, or nothing.
func fits(g gpu.Grant, device gpu.Device, others []Holding) string {
	memory, compute := device.Memory, int64(allCompute)
	for _, h := range others {
		switch {
		case h.Grant.Form == gpu.Whole:
			return "another claim has the whole GPU"
		case h.Grant.Form == gpu.MIG && g.Form == gpu.MIG:
			return "another claim has a partition there"
		case h.Grant.Form == gpu.MIG:
			return "its MIG partitions are in use"
		case g.Form != gpu.Slice:
			return "its shares are in use"
		}
		memory -= h.Grant.Memory
		compute -= h.Grant.Compute
	}
	if g.Form != gpu.Slice {
		return ""
	}
	if g.Memory > memory {
		return fmt.Sprintf("%s of the %s memory it offers is left", quantity(max(memory, 0)), quantity(device.Memory))
	}
	if g.Compute > compute {
		return fmt.Sprintf("%d%% of its compute is left", max(compute, 0))
	}
	return ""
}

// part words what a grant is of its GPU.
func part(g gpu.Grant) string {
	switch {
	case g.Form == gpu.MIG:
		return fmt.Sprintf("%s at memory slice %d", g.Partition.Profile, g.Partition.Start)
	case g.Form != gpu.Slice:
		return "the whole"
	case g.Compute > 0:
		return fmt.Sprintf("%s memory and %d%% compute", quantity(g.Memory), g.Compute)
	}
	return quantity(g.Memory) + " memory"
}

func holders(held []Holding) string {
	const most = 5
	held = slices.SortedFunc(slices.Values(held), func(a, b Holding) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var names []string
	for i, h := range held {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(held)-most))
			break
		}
		names = append(names, fmt.Sprintf("claim %s/%s (%s)", h.Namespace, h.Name, part(h.Grant)))
	}
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}

func quantity(bytes int64) string {
	return resource.NewQuantity(bytes, resource.BinarySI).String()
}
