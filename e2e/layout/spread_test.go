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

package layout

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
	"github.com/memslice/memslice/pkg/publish/schedulertest"
)

// spread is the list of alternatives into which the chart's policy turns a
// request for a share: each rank, then none.
func spread() resourceapi.DeviceRequest {
	var alternatives []resourceapi.DeviceRequest
	for rank := range gpu.MaxRanks {
		name := resourceapi.QualifiedName(fmt.Sprint(gpu.CapacityRank, rank+1))
		alternatives = append(alternatives, schedulertest.Request(gpu.Slice, map[resourceapi.QualifiedName]string{gpu.CapacityMemory: "1Gi", name: "1"}))
	}
	return schedulertest.FirstOf(append(alternatives, packed())...)
}

func packed() resourceapi.DeviceRequest {
	return schedulertest.Request(gpu.Slice, map[resourceapi.QualifiedName]string{gpu.CapacityMemory: "1Gi"})
}

// fleet is nodes "a", "b", … with this many GPUs each.
func fleet(features structured.Features, gpus ...int) (s *schedulertest.Scheduler) {
	for i, n := range gpus {
		name := string(rune('a' + i))
		var offers []publish.Offer
		for range n {
			o := everyForm(card(len(offers)+1, 80*gi, nil))
			o.Pool, o.Ranks = name, gpu.MaxRanks
			offers = append(offers, o)
		}
		devices, _ := publish.Devices(offers)
		if resources := publish.Resources(name, devices); s == nil {
			s = schedulertest.New(features, name, resources)
		} else {
			s.Join(name, resources)
		}
	}
	return s
}

// place gives the claim and the GPU that it got: "b2" is the second of node b.
func place(t *testing.T, s *schedulertest.Scheduler, r resourceapi.DeviceRequest) (claim, where string) {
	t.Helper()
	claim, result := s.MustAllocate(t, r)
	return claim, result.Pool + strings.TrimLeft(strings.TrimPrefix(result.Device, "gpu-"), "0")[:1]
}

// TestSpread: shares go round the GPUs, and no GPU gets a second one before all
// have one, on whatever node. When all ranks are held, the rest packs.
func TestSpread(t *testing.T) {
	for name, test := range map[string]struct {
		nodes []int
		round []string
	}{
		"one node":                {[]int{4}, []string{"a1", "a2", "a3", "a4"}},
		"two nodes":               {[]int{2, 2}, []string{"a1", "a2", "b1", "b2"}},
		"nodes of different size": {[]int{1, 3}, []string{"a1", "b1", "b2", "b3"}},
	} {
		t.Run(name, func(t *testing.T) {
			schedulertest.Versions(t, func(t *testing.T, features structured.Features) {
				s := fleet(features, test.nodes...)
				for round := range gpu.MaxRanks {
					var order []string
					for range test.round {
						_, where := place(t, s, spread())
						order = append(order, where)
					}
					if !slices.Equal(order, test.round) {
						t.Errorf("round %d: got %v, want %v", round+1, order, test.round)
					}
				}
				for range 5 {
					if _, where := place(t, s, spread()); where != test.round[0] {
						t.Errorf("with all ranks held: got %s, want %s", where, test.round[0])
					}
				}
			})
		})
	}
}

// What packs has no rank, and what ends makes room for the next.
func TestSpreadBesideOthers(t *testing.T) {
	schedulertest.Versions(t, func(t *testing.T, features structured.Features) {
		s := fleet(features, 3)
		var claims []string
		next := func(r resourceapi.DeviceRequest, want string) {
			t.Helper()
			claim, where := place(t, s, r)
			if where != want {
				t.Errorf("claim %d: got %s, want %s", len(claims)+1, where, want)
			}
			claims = append(claims, claim)
		}
		next(packed(), "a1")
		next(packed(), "a1")
		next(spread(), "a1")
		next(spread(), "a2")
		next(packed(), "a1")
		next(spread(), "a3")
		next(spread(), "a1")
		s.Release(claims[3])
		next(spread(), "a2")
		next(spread(), "a2")
	})
}
