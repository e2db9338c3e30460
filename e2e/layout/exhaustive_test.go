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

// The race detector finds nothing here that runs in several goroutines, and
// makes minutes of seconds.
//
//go:build !race

package layout

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/catalog/gonvml"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
	"github.com/memslice/memslice/pkg/publish/schedulertest"
)

var models = []string{"a30", "a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "h200-sxm5-141gb", "b200-sxm6-180gb"}

// TestEveryCombination walks all sets of partitions that a GPU can have at once,
// and asks at each for every further partition: the scheduler admits it exactly
// if the driver can make it, whatever the order in which the others came. Shares
// and the whole GPU are there exactly while no partition is.
func TestEveryCombination(t *testing.T) {
	theirs, err := gonvml.Geometries()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range models {
		model, err := catalog.Lookup(key)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			everyCombination(t, model.MIG)
		})
		t.Run(key+" as go-nvml defines it", func(t *testing.T) {
			t.Parallel()
			everyCombination(t, theirs[key])
		})
	}
}

// walk is the sets that have been seen, and how often the scheduler was asked.
type walk struct {
	t         *testing.T
	geometry  *catalog.Geometry
	scheduler *schedulertest.Scheduler
	places    []catalog.Placement
	devices   []string     // the name of that at each place
	others    []gpu.Device // the GPU's other forms
	seen      map[string]bool
	questions int
}

func everyCombination(t *testing.T, g *catalog.Geometry) {
	card := card(1, 80*gi, g)
	devices, problems := publish.Devices([]publish.Offer{everyForm(card)})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	w := &walk{t: t, geometry: g, seen: map[string]bool{},
		scheduler: schedulertest.New(schedulertest.Latest(), node, publish.Resources(node, devices))}
	for _, p := range g.Profiles {
		for _, start := range p.Starts {
			w.places = append(w.places, catalog.Placement{Profile: p.ID, Start: start})
			at := slices.IndexFunc(devices, func(d gpu.Device) bool { return d.Partition.Profile == p.Name && d.Partition.Start == start })
			w.devices = append(w.devices, devices[at].Name)
		}
	}
	w.others = slices.DeleteFunc(devices, func(d gpu.Device) bool { return d.Form == gpu.MIG })
	w.visit(nil)
	t.Logf("%d places, %d sets of partitions, %d questions", len(w.places), len(w.seen), w.questions)
	if len(w.seen) < len(w.places) {
		t.Errorf("only %d sets were seen", len(w.seen))
	}
}

// visit is at a set of places, by their index, which are allocated.
func (w *walk) visit(set []int) {
	key := fmt.Sprint(slices.Sorted(slices.Values(set)))
	if w.seen[key] || w.t.Failed() {
		return
	}
	w.seen[key] = true
	var existing []catalog.Placement
	for _, i := range set {
		existing = append(existing, w.places[i])
	}
	for i, place := range w.places {
		claim := w.ask(schedulertest.Request(gpu.MIG, nil), w.devices[i])
		if fits := w.geometry.Fits(existing, place); fits != (claim != "") {
			w.t.Fatalf("beside %s, %s is admitted by the scheduler: %t, and can be made by the driver: %t",
				w.names(existing), w.names([]catalog.Placement{place}), claim != "", fits)
		}
		if claim == "" {
			continue
		}
		w.visit(append(set[:len(set):len(set)], i))
		w.scheduler.Release(claim)
	}
	w.otherForms(set)
}

// ask is the claim that was allocated, or empty.
func (w *walk) ask(r resourceapi.DeviceRequest, device string) string {
	w.questions++
	claim, _, err := w.scheduler.Asked(device).Allocate(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return claim
}

func (w *walk) otherForms(set []int) {
	for _, d := range w.others {
		form := d.Form
		claim := w.ask(schedulertest.Request(form, nil), d.Name)
		if free := len(set) == 0; free != (claim != "") {
			w.t.Fatalf("with %d partitions, a claim for form %s is admitted: %t", len(set), form, claim != "")
		}
		if claim == "" {
			continue
		}
		for i := range w.places {
			if w.ask(schedulertest.Request(gpu.MIG, nil), w.devices[i]) != "" {
				w.t.Fatalf("partition %s is admitted beside form %s", w.names(w.places[i:i+1]), form)
			}
		}
		w.scheduler.Release(claim)
	}
}

func (w *walk) names(places []catalog.Placement) string {
	var names []string
	for _, place := range places {
		p, _ := w.geometry.ByID(place.Profile)
		names = append(names, fmt.Sprintf("%s at %d", p.Name, place.Start))
	}
	return "[" + strings.Join(names, ", ") + "]"
}
