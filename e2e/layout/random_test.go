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
	"strconv"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
	"github.com/memslice/memslice/pkg/publish/schedulertest"
)

// world is a node and the account of it.
type world struct {
	gpus      []*physical
	byUUID    map[string]*physical
	devices   map[string]gpu.Device
	scheduler *schedulertest.Scheduler
}

// newWorld has GPUs of each kind: in shares only, whole only, in both, in
// partitions only, in all forms at once, with an instance of somebody else, and
// one that is out of order.
func newWorld(t *testing.T, features structured.Features) *world {
	t.Helper()
	h100, a100, a30 := geometry(t, "h100-sxm5-80gb"), geometry(t, "a100-sxm4-40gb"), geometry(t, "a30")
	w := &world{byUUID: map[string]*physical{}, devices: map[string]gpu.Device{}}
	var offers []publish.Offer
	add := func(memory int64, g *catalog.Geometry, change func(*publish.Offer)) *physical {
		o := everyForm(card(len(offers)+1, memory, g))
		change(&o)
		offered := o.Withheld == ""
		p := &physical{
			geometry: g, memory: memory - o.Reserve, held: map[string][]holding{},
			forms: map[gpu.Form]bool{gpu.Slice: o.Shares && offered, gpu.Whole: o.Whole && offered, gpu.MIG: g != nil && offered},
		}
		offers, w.gpus, w.byUUID[o.GPU.UUID] = append(offers, o), append(w.gpus, p), p
		return p
	}
	add(24*gi, nil, func(*publish.Offer) {})
	add(80*gi, nil, func(o *publish.Offer) { o.Whole, o.Reserve = false, gi })
	add(80*gi, nil, func(o *publish.Offer) { o.Shares = false })
	add(80*gi, h100, func(*publish.Offer) {})
	add(40*gi, a100, func(o *publish.Offer) { o.Shares, o.Whole = false, false })
	add(24*gi, a30, func(*publish.Offer) {})
	add(16*gi, nil, func(o *publish.Offer) { o.Withheld = gpu.Unavailable })
	occupied := add(24*gi, a30, func(o *publish.Offer) {
		o.Occupied = []gpu.Partition{{Profile: "1g.6gb+me", Start: 1, Size: 1}}
	})
	media, _ := a30.BySlot(catalog.Slot1SliceRev1)
	occupied.held["an administrator"] = []holding{{form: gpu.MIG, place: catalog.Placement{Profile: media.ID, Start: 1}}}

	devices, problems := publish.Devices(offers)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, d := range devices {
		w.devices[d.Pool+" "+d.Name] = d
	}
	w.scheduler = schedulertest.New(features, node, publish.Resources(node, devices))
	return w
}

// TestRandomClaims makes and releases claims in all forms at random, and checks
// every GPU after each: nothing is given away twice, whatever the forms; a claim
// gets what it asks for; what there is room for is not refused, however the room
// is found; and the first alternative for which there is room is taken.
func TestRandomClaims(t *testing.T) {
	schedulertest.Versions(t, func(t *testing.T, features structured.Features) {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				t.Parallel()
				newWorld(t, features).live(t, rand.New(rand.NewPCG(seed, 7)))
			})
		}
	})
}

func (w *world) live(t *testing.T, random *rand.Rand) {
	var claims []string
	admitted, refused := map[string]int{}, map[string]int{}
	for range 900 {
		if len(claims) > 0 && random.IntN(20) < 8 {
			i := random.IntN(len(claims))
			w.release(claims[i])
			claims = slices.Delete(claims, i, i+1)
			continue
		}
		requests := randomClaim(random)
		kind := kind(requests)
		if claim := w.allocate(t, requests); claim != "" {
			admitted[kind]++
			claims = append(claims, claim)
		} else {
			refused[kind]++
		}
		for _, p := range w.gpus {
			if err := p.check(); err != nil {
				t.Fatalf("after %+v: GPU with %+v: %v", requests, p.held, err)
			}
		}
	}
	t.Logf("admitted %v, refused %v", admitted, refused)
	for _, kind := range []string{"slice", "gpu", "mig", "several", "alternatives"} {
		if admitted[kind] < 5 || refused[kind] < 5 {
			t.Errorf("%s: %d claims were admitted and %d refused: the test shows little", kind, admitted[kind], refused[kind])
		}
	}
}

func kind(requests [][]want) string {
	switch {
	case len(requests) > 1:
		return "several"
	case len(requests[0]) > 1:
		return "alternatives"
	}
	return string(requests[0][0].form)
}

func (w *world) release(claim string) {
	w.scheduler.Release(claim)
	for _, p := range w.gpus {
		delete(p.held, claim)
	}
}

// allocate gives the claim, or nothing where it stays pending, and fails where
// that is not as it must be.
func (w *world) allocate(t *testing.T, requests [][]want) string {
	t.Helper()
	var asked []resourceapi.DeviceRequest
	for i, alternatives := range requests {
		asked = append(asked, request(fmt.Sprint(i), alternatives))
	}
	claim, results, err := w.scheduler.Allocate(asked...)
	if err != nil {
		t.Fatalf("allocating %+v: %v", requests, err)
	}
	first, room := solve(w.gpus, requests)
	if room != (claim != "") {
		t.Fatalf("%+v is admitted: %t, there is room: %t", requests, claim != "", room)
	}
	for i, asked := range asked {
		var chosen, devices int
		for _, r := range results {
			name, option, _ := strings.Cut(r.Request, "/option")
			if name != asked.Name {
				continue
			}
			if option != "" {
				chosen, err = strconv.Atoi(option)
			}
			if err != nil || chosen >= len(requests[i]) {
				t.Fatalf("a result is for %q", r.Request)
			}
			w.take(t, claim, r, requests[i][chosen])
			devices++
		}
		if room && devices != requests[i][chosen].count {
			t.Fatalf("%+v: request %d got %d devices", requests, i, devices)
		}
		if room && i == 0 && chosen != first {
			t.Fatalf("%+v got alternative %d, and %d can be had", requests, chosen, first)
		}
	}
	return claim
}

// take books a result of the scheduler, which has to be what was wanted.
func (w *world) take(t *testing.T, claim string, r resourceapi.DeviceRequestAllocationResult, wanted want) {
	t.Helper()
	d, ok := w.devices[r.Pool+" "+r.Device]
	if !ok {
		t.Fatalf("device %s in pool %s is not published", r.Device, r.Pool)
	}
	p := w.byUUID[d.GPU.UUID]
	memory, compute := r.ConsumedCapacity[gpu.CapacityMemory], r.ConsumedCapacity[gpu.CapacityCompute]
	h := holding{form: d.Form, memory: memory.Value(), compute: compute.Value()}
	if d.Form == gpu.MIG {
		h.place = catalog.Placement{Profile: d.Profile.ID, Start: d.Partition.Start}
	}
	if !slices.Contains(p.candidates(wanted), h) {
		t.Fatalf("%+v got %+v of GPU %s", wanted, h, d.GPU.UUID)
	}
	p.held[claim] = append(p.held[claim], h)
}

func request(name string, alternatives []want) resourceapi.DeviceRequest {
	var all []resourceapi.DeviceRequest
	for _, w := range alternatives {
		var selectors []string
		if w.profile != "" {
			selectors = append(selectors, fmt.Sprintf("device.attributes[%q].profile == %q", gpu.DriverName, w.profile))
		}
		capacity := map[resourceapi.QualifiedName]string{}
		if w.form == gpu.Slice {
			capacity[gpu.CapacityCompute] = fmt.Sprint(w.compute)
		}
		if w.memory > 0 {
			capacity[gpu.CapacityMemory] = fmt.Sprint(w.memory)
		}
		r := schedulertest.Request(w.form, capacity, selectors...)
		r.Exactly.Count = int64(w.count)
		all = append(all, r)
	}
	r := all[0]
	if len(all) > 1 {
		r = schedulertest.FirstOf(all...)
	}
	r.Name = name
	return r
}

// randomClaim has one request, or now and then up to three, or alternatives.
func randomClaim(random *rand.Rand) [][]want {
	claim := [][]want{{randomWant(random)}}
	for random.IntN(6) == 0 && len(claim) < 3 {
		claim = append(claim, []want{randomWant(random)})
	}
	for i := range claim {
		for random.IntN(7) == 0 && len(claim[i]) < 3 {
			claim[i] = append(claim[i], randomWant(random))
		}
	}
	return claim
}

func randomWant(random *rand.Rand) want {
	count := 1 + random.IntN(5)/4
	switch random.IntN(8) {
	case 0, 4:
		return want{form: gpu.Whole, count: count}
	case 1, 2, 3:
		profiles := []string{"1g.10gb", "1g.10gb+me", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.5gb", "3g.20gb", "1g.6gb", "1g.6gb+me", "2g.12gb", "4g.24gb"}
		return want{form: gpu.MIG, profile: profiles[random.IntN(len(profiles))], count: count}
	}
	amounts := []int64{0, 1, 100 * mi, gi + 1, 5 * gi, 10 * gi, 20 * gi, 40 * gi, 70 * gi}
	return want{form: gpu.Slice, memory: amounts[random.IntN(len(amounts))], compute: int64(random.IntN(4) * random.IntN(3) * 10), count: count}
}
