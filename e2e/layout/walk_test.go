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

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
	"github.com/memslice/memslice/pkg/publish/schedulertest"
)

// walk is the sets that have been seen, and how often the scheduler was asked.
type walk struct {
	t         *testing.T
	geometry  *catalog.Geometry
	scheduler *schedulertest.Scheduler
	places    []catalog.Placement
	devices   []string            // the name of that at each place
	forms     []string            // the names of the GPU's devices in other forms
	others    []catalog.Placement // of instances that no claim has
	seen      map[uint64]bool
	questions int
}

func newWalk(t *testing.T, g *catalog.Geometry, others []catalog.Placement) *walk {
	t.Helper()
	o := everyForm(card(1, 80*gi, g))
	for _, place := range others {
		o.Occupied = append(o.Occupied, partition(g, place))
	}
	devices, problems := publish.Devices([]publish.Offer{o})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	w := &walk{
		t: t, geometry: g, places: placements(g), others: others, seen: map[uint64]bool{},
		scheduler: schedulertest.New(schedulertest.Latest(), node, publish.Resources(node, devices)),
	}
	names := map[gpu.Partition]string{}
	for _, d := range devices {
		if names[d.Partition] = d.Name; d.Form != gpu.MIG {
			w.forms = append(w.forms, d.Name)
		}
	}
	for _, place := range w.places {
		name := names[partition(g, place)]
		if name == "" {
			t.Fatalf("no device is %+v", partition(g, place))
		}
		w.devices = append(w.devices, name)
	}
	if len(w.forms) != 2 || len(devices) != 2+len(w.places) {
		t.Fatalf("%d devices for %d places, %d of them in other forms: want shares and the whole", len(devices), len(w.places), len(w.forms))
	}
	return w
}

// visit is at a set of places, by their index, which are allocated.
func (w *walk) visit(set []int) {
	var key uint64
	for _, i := range set {
		key |= 1 << i
	}
	if w.seen[key] {
		return
	}
	w.seen[key] = true
	for _, i := range w.step(set) {
		claim := w.admits(w.devices[i], w.existing(set))
		w.visit(append(set[:len(set):len(set)], i))
		w.scheduler.Release(claim)
	}
}

// step gives what the driver can make beside a set of places, which are
// allocated, and sees to it that nothing else is admitted.
func (w *walk) step(set []int) (fit []int) {
	existing := w.existing(set)
	var refused []string
	for i, place := range w.places {
		if w.geometry.Fits(existing, place) {
			fit = append(fit, i)
		} else {
			refused = append(refused, w.devices[i])
		}
	}
	if len(existing) > 0 {
		refused = append(refused, w.forms...)
	}
	w.refuses(refused, existing)
	return fit
}

func (w *walk) existing(set []int) []catalog.Placement {
	all := slices.Clone(w.others)
	for _, i := range set {
		all = append(all, w.places[i])
	}
	return all
}

// otherForms are there on an empty GPU, and no partition beside them.
func (w *walk) otherForms() {
	for i, name := range w.forms {
		claim := w.admits(name, nil)
		w.refuses(append(slices.Clone(w.devices), w.forms[1-i]), nil)
		w.scheduler.Release(claim)
	}
}

// admits gives the claim that the device went to.
func (w *walk) admits(device string, existing []catalog.Placement) string {
	claim, results := w.ask(device)
	if len(results) != 1 || results[0].Device != device {
		w.t.Fatalf("beside %s, %s can be made by the driver, and the scheduler gives %v", w.names(existing), device, results)
	}
	return claim
}

// refuses asks for any one of several devices, none of which can be had: that is
// one question instead of one for each.
func (w *walk) refuses(devices []string, existing []catalog.Placement) {
	if _, results := w.ask(devices...); len(results) > 0 {
		w.t.Fatalf("beside %s, %s cannot be made by the driver, and is admitted by the scheduler", w.names(existing), results[0].Device)
	}
}

func (w *walk) ask(devices ...string) (string, []resourceapi.DeviceRequestAllocationResult) {
	w.questions++
	claim, results, err := w.scheduler.Asked(devices...).Allocate(schedulertest.Any())
	if err != nil {
		w.t.Fatal(err)
	}
	return claim, results
}

func (w *walk) names(places []catalog.Placement) string {
	var names []string
	for _, place := range places {
		p := partition(w.geometry, place)
		names = append(names, fmt.Sprintf("%s at %d", p.Profile, p.Start))
	}
	return "[" + strings.Join(names, ", ") + "]"
}
