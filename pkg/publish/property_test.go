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

package publish

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/memslice/memslice/pkg/gpu"
)

// want is one request of a claim: for a whole GPU, or for a share.
type want struct {
	whole   bool
	memory  string // "" names none
	compute int64
}

func (w want) request(name string) resourceapi.DeviceRequest {
	r := wholeRequest()
	if !w.whole {
		r = shareRequest(map[resourceapi.QualifiedName]string{gpu.CapacityCompute: fmt.Sprint(w.compute)})
		if w.memory != "" {
			r.Exactly.Capacity.Requests[gpu.CapacityMemory] = resource.MustParse(w.memory)
		}
	}
	r.Name = name
	return r
}

// ledger is the plainest account of the GPUs of a node that has the defaults.
type ledger struct {
	capacity []int64 // bytes, by GPU in the order of shares; the order of whole GPUs is the reverse
	held     map[string][]holding
}

type holding struct {
	gpu             int
	whole           bool
	memory, compute int64
}

func (l ledger) amount(w want, gpu int) int64 {
	if w.memory == "" {
		return l.capacity[gpu]
	}
	q := resource.MustParse(w.memory)
	steps := (q.Value() - 256*mi + mi - 1) / mi
	return 256*mi + max(steps, 0)*mi
}

func (l ledger) fits(h holding, also []holding) bool {
	memory, compute := h.memory, h.compute
	check := func(other holding) bool {
		if other.gpu != h.gpu {
			return true
		}
		memory, compute = memory+other.memory, compute+other.compute
		return !h.whole && !other.whole
	}
	for _, other := range also {
		if !check(other) {
			return false
		}
	}
	for _, holdings := range l.held {
		for _, other := range holdings {
			if !check(other) {
				return false
			}
		}
	}
	return memory <= l.capacity[h.gpu] && compute <= 100
}

// place finds the first GPUs in order that satisfy all wants.
func (l ledger) place(wants []want, placed []holding) []holding {
	if len(wants) == 0 {
		return placed
	}
	for i := range l.capacity {
		h := holding{gpu: i, compute: wants[0].compute}
		if h.whole = wants[0].whole; h.whole {
			h.gpu, h.compute = len(l.capacity)-1-i, 0
		} else {
			h.memory = l.amount(wants[0], i)
		}
		if !l.fits(h, placed) {
			continue
		}
		if all := l.place(wants[1:], append(placed[:len(placed):len(placed)], h)); all != nil {
			return all
		}
	}
	return nil
}

// TestRandomClaims makes and releases claims at random, and wants the scheduler
// to do exactly what the ledger does: never to put more on a GPU than it has,
// never to mix its forms, never to refuse what fits, and to take the GPUs in
// the order that Devices promises.
func TestRandomClaims(t *testing.T) {
	schedulers(t, func(t *testing.T, features structured.Features) {
		for seed := range uint64(6) {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				randomClaims(t, features, rand.New(rand.NewPCG(seed, 0)))
			})
		}
	})
}

func randomClaims(t *testing.T, features structured.Features, random *rand.Rand) {
	gpus := []gpu.GPU{card(4, 24*gi), card(3, 80*gi+7), card(1, 46068*mi), card(2, 46068*mi)}
	order := []string{"gpu-00000004-0000", "gpu-00000001-0000", "gpu-00000002-0000", "gpu-00000003-0000"}
	l := ledger{capacity: []int64{24 * gi, 46068 * mi, 46068 * mi, 80 * gi}, held: map[string][]holding{}}
	s := schedulerFor(features, gpus)

	var live []string
	admitted, refused := 0, 0
	for range 250 {
		if len(live) > 0 && random.IntN(5) < 2 {
			i := random.IntN(len(live))
			s.Release(live[i])
			delete(l.held, live[i])
			live = append(live[:i], live[i+1:]...)
			continue
		}
		wants := randomWants(random)
		var requests []resourceapi.DeviceRequest
		for i, w := range wants {
			requests = append(requests, w.request(fmt.Sprint("r", i)))
		}
		claim, results, err := s.Allocate(requests...)
		if err != nil {
			t.Fatalf("allocating %+v: %v", wants, err)
		}
		expected := l.place(wants, nil)
		if diff := cmp.Diff(expected, holdings(results, order), cmp.AllowUnexported(holding{})); diff != "" {
			t.Fatalf("claim for %+v next to %+v (-want +got):\n%s", wants, l.held, diff)
		}
		if expected == nil {
			refused++
			continue
		}
		admitted++
		l.held[claim] = expected
		live = append(live, claim)
	}
	if admitted < 20 || refused < 20 {
		t.Errorf("%d claims were admitted and %d refused: the test shows little", admitted, refused)
	}
}

func randomWants(random *rand.Rand) []want {
	amounts := []string{"", "1", "100Mi", "1e9", "2000Mi", "4G", "0.5Gi", "4Gi", "10Gi", "16Gi", "20000000001", "40Gi", "60Gi", "81Gi"}
	computes := []int64{0, 0, 0, 10, 25, 50, 100}
	var wants []want
	for range 1 + random.IntN(3)/2 {
		if random.IntN(6) == 0 {
			wants = append(wants, want{whole: true})
			continue
		}
		wants = append(wants, want{
			memory:  amounts[random.IntN(len(amounts))],
			compute: computes[random.IntN(len(computes))],
		})
	}
	return wants
}

func holdings(results []resourceapi.DeviceRequestAllocationResult, order []string) []holding {
	var all []holding
	for _, r := range results {
		for i, name := range order {
			switch r.Device {
			case name:
				all = append(all, holding{gpu: i, whole: true})
			case name + "-slice":
				all = append(all, holding{gpu: i, memory: granted(r, gpu.CapacityMemory), compute: granted(r, gpu.CapacityCompute)})
			}
		}
	}
	return all
}
