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
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/catalog/gonvml"
)

var models = []string{"a30", "a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "h200-sxm5-141gb", "b200-sxm6-180gb"}

// TestEveryCombination walks all sets of partitions that a GPU can have at once,
// and asks at each for every further partition: the scheduler admits it exactly
// if the driver can make it, whatever the order in which the others came. Shares
// and the whole GPU are there exactly while no partition is.
func TestEveryCombination(t *testing.T) {
	for _, shape := range shapes(t) {
		t.Run(strings.Join(shape.models, ", "), func(t *testing.T) {
			t.Parallel()
			everyCombination(t, shape.geometry)
		})
	}
}

func everyCombination(t *testing.T, g *catalog.Geometry) {
	w := newWalk(t, g, nil)
	w.visit(nil)
	w.otherForms()
	t.Logf("%d places, %d sets of partitions, %d questions", len(w.places), len(w.seen), w.questions)
	if len(w.seen) <= len(w.places) {
		t.Errorf("only %d sets were seen", len(w.seen))
	}
}

// TestBesideOthers: what somebody else has made on a GPU takes its part from what
// the scheduler admits, as it does from what the driver can make. Each model is
// filled at random, beside instances at random places.
func TestBesideOthers(t *testing.T) {
	for _, key := range models {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			g := geometry(t, key)
			made := 0
			for seed := range uint64(60) {
				random := rand.New(rand.NewPCG(seed, 0))
				w := newWalk(t, g, someOf(g, 1+int(seed%3), random))
				var set []int
				for fit := w.step(set); len(fit) > 0; fit = w.step(set) {
					i := fit[random.IntN(len(fit))]
					w.admits(w.devices[i], w.existing(set))
					set = append(set, i)
				}
				made += len(set)
			}
			if made < 60 {
				t.Errorf("%d partitions were made on 60 GPUs: the test shows little", made)
			}
		})
	}
}

// someOf is at most n placements that fit together.
func someOf(g *catalog.Geometry, n int, random *rand.Rand) (some []catalog.Placement) {
	all := placements(g)
	for _, i := range random.Perm(len(all)) {
		if len(some) < n && g.Fits(some, all[i]) {
			some = append(some, all[i])
		}
	}
	return some
}

// shape is a geometry and the models that have it.
type shape struct {
	geometry *catalog.Geometry
	models   []string
}

// shapes are the geometries of all models, as the catalog has them and as
// go-nvml does. Models that differ in what profiles are called and how large they
// are, and in nothing that decides what fits, are one shape.
func shapes(t *testing.T) (all []*shape) {
	t.Helper()
	theirs, err := gonvml.Geometries()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]*shape{}
	add := func(name string, g *catalog.Geometry) {
		bare := *g
		bare.Profiles = slices.Clone(g.Profiles)
		for i := range bare.Profiles {
			p := &bare.Profiles[i]
			p.Name, p.MemoryMiB, p.Multiprocessors = "", 0, 0
		}
		key := fmt.Sprintf("%+v", bare)
		if known[key] == nil {
			known[key] = &shape{geometry: g}
			all = append(all, known[key])
		}
		known[key].models = append(known[key].models, name)
	}
	for _, key := range models {
		add(key, geometry(t, key))
		add(key+" of go-nvml", theirs[key])
	}
	return all
}
