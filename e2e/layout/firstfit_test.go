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
	"testing"

	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
	"github.com/memslice/memslice/pkg/publish/schedulertest"
)

// TestSmallLeaveRoomForLarge: small partitions that come first are put where the
// large ones that come later still fit.
func TestSmallLeaveRoomForLarge(t *testing.T) {
	const (
		quarter = catalog.Slot1SliceRev2 // one compute slice, two of memory
		one     = catalog.Slot1Slice
		media   = catalog.Slot1SliceRev1
		two     = catalog.Slot2Slice
		three   = catalog.Slot3Slice
		four    = catalog.Slot4Slice
	)
	for _, sequence := range [][]int{
		{one, one, one, four},
		{one, one, one, three},
		{one, media, one, four},
		{one, two, four},
		{two, one, four},
		{two, three},
		{quarter, quarter, four},
		{quarter, one, one, four},
		{quarter, two, three},
		{three, four},
		{one, one, one, two, two},
	} {
		for _, model := range []string{"a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "h200-sxm5-141gb", "b200-sxm6-180gb"} {
			t.Run(fmt.Sprint(model, sequence), func(t *testing.T) {
				schedulertest.Versions(t, func(t *testing.T, features structured.Features) {
					g := geometry(t, model)
					devices, _ := publish.Devices([]publish.Offer{everyForm(card(1, 80*gi, g))})
					s := schedulertest.New(features, node, publish.Resources(node, devices))
					for _, slot := range sequence {
						profile, _ := g.BySlot(slot)
						s.MustAllocate(t, schedulertest.Request(gpu.MIG, nil, fmt.Sprintf("device.attributes[%q].profile == %q", gpu.DriverName, profile.Name)))
					}
				})
			})
		}
	}
}

// TestOrderOfPlaces counts the sequences of requests that the order of places
// serves to the end, among all that some arrangement could serve. No fixed order
// serves all: two 2g and a 3g need other places than a 2g and a 4g. Of the 60,480
// orders of 1g, 2g and 3g on seven slices, the best serves 98 of 112, that which
// is published 97, and that by place 85.
func TestOrderOfPlaces(t *testing.T) {
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			g := geometry(t, model)
			devices, _ := publish.Devices([]publish.Offer{everyForm(card(1, 80*gi, g))})
			var published []catalog.Placement
			for _, d := range devices {
				if d.Form == gpu.MIG {
					published = append(published, catalog.Placement{Profile: d.Profile.ID, Start: d.Partition.Start})
				}
			}
			byPlace := placements(g)
			sequences := possible(g)
			ours, plain := served(g, published, sequences), served(g, byPlace, sequences)
			t.Logf("of %d sequences the published order serves %d, the order by place %d", len(sequences), ours, plain)
			if sevenSlices := g.ComputeSlices == 7; ours < plain || sevenSlices && ours == plain {
				t.Errorf("of %d sequences the published order serves %d, the order by place %d", len(sequences), ours, plain)
			}
		})
	}
}

// possible are the sequences of profiles, by their index, for which a GPU has
// room if it is given away with foresight.
func possible(g *catalog.Geometry) (all [][]int) {
	room := map[string]bool{}
	var extend func(sequence []int)
	extend = func(sequence []int) {
		for i := range g.Profiles {
			longer := append(sequence[:len(sequence):len(sequence)], i)
			sorted := slices.Sorted(slices.Values(longer))
			key := fmt.Sprint(sorted)
			if _, known := room[key]; !known {
				room[key] = arranged(g, sorted, nil)
			}
			if room[key] {
				all = append(all, longer)
				extend(longer)
			}
		}
	}
	extend(nil)
	return all
}

// arranged tells whether some arrangement has room for all these profiles.
func arranged(g *catalog.Geometry, profiles []int, made []catalog.Placement) bool {
	if len(profiles) == 0 {
		return true
	}
	p := g.Profiles[profiles[0]]
	return slices.ContainsFunc(p.Starts, func(start int) bool {
		place := catalog.Placement{Profile: p.ID, Start: start}
		return g.Fits(made, place) && arranged(g, profiles[1:], append(made[:len(made):len(made)], place))
	})
}

// served counts the sequences in which each profile finds a place, where it gets
// the first in the order that is free.
func served(g *catalog.Geometry, order []catalog.Placement, sequences [][]int) (n int) {
	for _, sequence := range sequences {
		var made []catalog.Placement
		for _, i := range sequence {
			at := slices.IndexFunc(order, func(place catalog.Placement) bool {
				return place.Profile == g.Profiles[i].ID && g.Fits(made, place)
			})
			if at < 0 {
				break
			}
			made = append(made, order[at])
		}
		if len(made) == len(sequence) {
			n++
		}
	}
	return n
}
