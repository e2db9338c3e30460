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

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
	"github.com/memslice/memslice/pkg/publish/schedulertest"
)

// physical is the plainest account of one GPU.
type physical struct {
	geometry *catalog.Geometry // nil where it cannot be divided
	forms    map[gpu.Form]bool // that it is offered in
	memory   int64

	// What claims hold of it, by claim.
	shares     map[string][]share
	whole      map[string]bool
	partitions map[string][]catalog.Placement
}

type share struct{ memory, compute int64 }

func (p *physical) all() (placements []catalog.Placement) {
	for _, places := range p.partitions {
		placements = append(placements, places...)
	}
	return placements
}

// room tells whether one more request finds room, whatever else the claim got.
func (p *physical) room(form gpu.Form, s share, profile string) bool {
	if !p.forms[form] {
		return false
	}
	switch form {
	case gpu.Whole:
		return len(p.shares)+len(p.whole)+len(p.partitions) == 0
	case gpu.Slice:
		memory, compute := s.memory, s.compute
		for _, held := range p.shares {
			for _, other := range held {
				memory, compute = memory+other.memory, compute+other.compute
			}
		}
		return len(p.whole)+len(p.partitions) == 0 && memory <= p.memory && compute <= 100
	}
	if p.geometry == nil || len(p.shares)+len(p.whole) > 0 {
		return false
	}
	for i := range p.geometry.Profiles {
		q := &p.geometry.Profiles[i]
		for _, start := range q.Starts {
			if q.Name == profile && p.geometry.Fits(p.all(), catalog.Placement{Profile: q.ID, Start: start}) {
				return true
			}
		}
	}
	return false
}

// take books a result that the scheduler has given, or says why that cannot be.
func (p *physical) take(claim string, r resourceapi.DeviceRequestAllocationResult, d gpu.Device) error {
	if !p.forms[d.Form] {
		return fmt.Errorf("form %s is not offered", d.Form)
	}
	memory, compute := r.ConsumedCapacity[gpu.CapacityMemory], r.ConsumedCapacity[gpu.CapacityCompute]
	s := share{memory.Value(), compute.Value()}
	if d.Form != gpu.MIG && !p.room(d.Form, s, "") {
		return fmt.Errorf("no room for form %s of %+v beside %d shares, %d wholes, %v", d.Form, s, len(p.shares), len(p.whole), p.all())
	}
	switch d.Form {
	case gpu.Whole:
		p.whole[claim] = true
	case gpu.Slice:
		p.shares[claim] = append(p.shares[claim], s)
	case gpu.MIG:
		place := catalog.Placement{Profile: d.Profile.ID, Start: d.Partition.Start}
		if len(p.shares)+len(p.whole) > 0 || !p.geometry.Fits(p.all(), place) {
			return fmt.Errorf("no room for %s beside %d shares, %d wholes, %v", d.Name, len(p.shares), len(p.whole), p.all())
		}
		p.partitions[claim] = append(p.partitions[claim], place)
	}
	return nil
}

func (p *physical) release(claim string) {
	delete(p.shares, claim)
	delete(p.whole, claim)
	delete(p.partitions, claim)
}

// world is a node and the account of it.
type world struct {
	gpus      map[string]*physical // by UUID
	devices   map[string]gpu.Device
	scheduler *schedulertest.Scheduler
}

// newWorld has GPUs of each kind: in shares only, whole only, in both, in
// partitions only, and in all forms at once.
func newWorld(t *testing.T, features structured.Features) *world {
	t.Helper()
	geometry := func(key string) *catalog.Geometry {
		model, err := catalog.Lookup(key)
		if err != nil {
			t.Fatal(err)
		}
		return model.MIG
	}
	offers := []publish.Offer{
		everyForm(card(1, 24*gi, nil)), everyForm(card(2, 80*gi, nil)), everyForm(card(3, 80*gi, nil)),
		everyForm(card(4, 80*gi, geometry("h100-sxm5-80gb"))), everyForm(card(5, 40*gi, geometry("a100-sxm4-40gb"))), everyForm(card(6, 24*gi, geometry("a30"))),
	}
	offers[1].Whole, offers[2].Shares = false, false
	offers[4].Whole, offers[4].Shares = false, false
	w := &world{gpus: map[string]*physical{}, devices: map[string]gpu.Device{}}
	for i, o := range offers {
		p := &physical{
			forms:  map[gpu.Form]bool{gpu.Slice: o.Shares, gpu.Whole: o.Whole, gpu.MIG: o.GPU.MIG != nil},
			memory: int64(o.GPU.Memory.Total),
			shares: map[string][]share{}, whole: map[string]bool{}, partitions: map[string][]catalog.Placement{},
		}
		switch i {
		case 3:
			p.geometry = geometry("h100-sxm5-80gb")
		case 4:
			p.geometry = geometry("a100-sxm4-40gb")
		case 5:
			p.geometry = geometry("a30")
		}
		w.gpus[o.GPU.UUID] = p
	}
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
// every GPU after each: nothing is given away twice, whatever the forms, and what
// there is room for is not refused.
func TestRandomClaims(t *testing.T) {
	schedulertest.Versions(t, func(t *testing.T, features structured.Features) {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, features)
				random := rand.New(rand.NewPCG(seed, 7))
				var live []string
				admitted, refused := map[gpu.Form]int{}, map[gpu.Form]int{}
				for range 700 {
					if len(live) > 0 && random.IntN(20) < 9 {
						i := random.IntN(len(live))
						w.release(live[i])
						live = slices.Delete(live, i, i+1)
						continue
					}
					form, claim := w.claim(t, random)
					if claim == "" {
						refused[form]++
						continue
					}
					admitted[form]++
					live = append(live, claim)
				}
				for _, form := range []gpu.Form{gpu.Slice, gpu.Whole, gpu.MIG} {
					if admitted[form] < 5 || refused[form] < 5 {
						t.Errorf("%d claims for form %s were admitted and %d refused: the test shows little", admitted[form], form, refused[form])
					}
				}
			})
		}
	})
}

func (w *world) release(claim string) {
	w.scheduler.Release(claim)
	for _, p := range w.gpus {
		p.release(claim)
	}
}

// claim asks for one to three devices of a form, or now and then for the first
// of two forms.
func (w *world) claim(t *testing.T, random *rand.Rand) (gpu.Form, string) {
	t.Helper()
	form, s, profile, request := randomRequest(random)
	requests := []resourceapi.DeviceRequest{request}
	for i := 1; i < 3 && random.IntN(6) == 0; i++ {
		_, _, _, more := randomRequest(random)
		more.Name = fmt.Sprint("more", i)
		requests = append(requests, more)
	}
	if random.IntN(8) == 0 {
		_, _, _, second := randomRequest(random)
		requests = []resourceapi.DeviceRequest{firstOf(request, second)}
	}
	expected := false
	for _, p := range w.gpus {
		expected = expected || p.room(form, s, profile)
	}
	claim, results, err := w.scheduler.Allocate(requests...)
	if err != nil {
		t.Fatalf("allocating: %v", err)
	}
	if simple := len(requests) == 1 && requests[0].Exactly != nil; simple && expected != (claim != "") {
		t.Fatalf("a claim for form %s, %+v, profile %q is admitted: %t, there is room: %t", form, s, profile, claim != "", expected)
	}
	for _, r := range results {
		d, ok := w.devices[r.Pool+" "+r.Device]
		if !ok {
			t.Fatalf("device %s in pool %s is not published", r.Device, r.Pool)
		}
		if err := w.gpus[d.GPU.UUID].take(claim, r, d); err != nil {
			t.Fatalf("GPU %s, device %s: %v", d.GPU.UUID, r.Device, err)
		}
	}
	return form, claim
}

func randomRequest(random *rand.Rand) (gpu.Form, share, string, resourceapi.DeviceRequest) {
	switch random.IntN(8) {
	case 0:
		return gpu.Whole, share{}, "", schedulertest.Request(gpu.Whole, nil)
	case 1, 2, 3:
		profiles := []string{"1g.10gb", "1g.10gb+me", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.5gb", "3g.20gb", "1g.6gb", "2g.12gb", "4g.24gb"}
		name := profiles[random.IntN(len(profiles))]
		return gpu.MIG, share{}, name, schedulertest.Request(gpu.MIG, nil, fmt.Sprintf("device.attributes[%q].profile == %q", gpu.DriverName, name))
	}
	amounts := []int64{256 * mi, gi, 5 * gi, 10 * gi, 20 * gi, 40 * gi, 70 * gi}
	s := share{amounts[random.IntN(len(amounts))], int64(random.IntN(4) * random.IntN(3) * 10)}
	return gpu.Slice, s, "", schedulertest.Request(gpu.Slice, map[resourceapi.QualifiedName]string{
		gpu.CapacityMemory: fmt.Sprint(s.memory), gpu.CapacityCompute: fmt.Sprint(s.compute),
	})
}

// firstOf makes alternatives of two requests.
func firstOf(requests ...resourceapi.DeviceRequest) resourceapi.DeviceRequest {
	var list []resourceapi.DeviceSubRequest
	for i, r := range requests {
		list = append(list, resourceapi.DeviceSubRequest{
			Name: fmt.Sprint("option", i), DeviceClassName: r.Exactly.DeviceClassName, Selectors: r.Exactly.Selectors,
			AllocationMode: r.Exactly.AllocationMode, Count: r.Exactly.Count, Capacity: r.Exactly.Capacity,
		})
	}
	return resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: list}
}

// TestRanksGoRound: the list of alternatives into which the chart's policy turns
// a request has shares go round the GPUs.
func TestRanksGoRound(t *testing.T) {
	var offers []publish.Offer
	for n := range 4 {
		o := everyForm(card(n+1, 80*gi, nil))
		o.Ranks = 3
		offers = append(offers, o)
	}
	devices, _ := publish.Devices(offers)
	schedulertest.Versions(t, func(t *testing.T, features structured.Features) {
		scheduler := schedulertest.New(features, node, publish.Resources(node, devices))
		capacity := func(rank int) map[resourceapi.QualifiedName]string {
			c := map[resourceapi.QualifiedName]string{gpu.CapacityMemory: "1Gi"}
			if rank > 0 {
				c[resourceapi.QualifiedName(fmt.Sprint(gpu.CapacityRank, rank))] = "1"
			}
			return c
		}
		spread := firstOf(schedulertest.Request(gpu.Slice, capacity(1)), schedulertest.Request(gpu.Slice, capacity(2)),
			schedulertest.Request(gpu.Slice, capacity(3)), schedulertest.Request(gpu.Slice, capacity(0)))
		var order []string
		for range 14 {
			_, results, err := scheduler.Allocate(spread)
			if err != nil || len(results) != 1 {
				t.Fatalf("allocating: %v, %v", results, err)
			}
			order = append(order, strings.TrimLeft(strings.TrimPrefix(results[0].Device, "gpu-"), "0")[:1])
		}
		if got, want := strings.Join(order, ""), "12341234123411"; got != want {
			t.Errorf("GPUs in the order %s, want %s", got, want)
		}
	})
}
