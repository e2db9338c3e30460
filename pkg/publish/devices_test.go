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
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/memslice/memslice/pkg/gpu"
)

func TestDevicesForms(t *testing.T) {
	noFigure := card(1, 0)
	noFigure.Memory = nil
	twin := card(1, 80*gi)
	twin.UUID = "GPU-00000001-0000-4000-8000-0000000000ff"
	share := func(memory, min, step int64) gpu.Device {
		return gpu.Device{Name: "gpu-00000001-0000-slice", Form: gpu.Slice, Memory: memory, MemoryMin: min, MemoryStep: step}
	}
	whole := func(memory int64) gpu.Device {
		return gpu.Device{Name: "gpu-00000001-0000", Form: gpu.Whole, Memory: memory}
	}
	for name, tc := range map[string]struct {
		gpus    []gpu.GPU
		change  func(*Offer)
		want    []gpu.Device
		problem string
	}{
		"shares and the whole": {
			gpus: cards(1, 80*gi),
			want: []gpu.Device{share(80*gi, 256*mi, mi), whole(80 * gi)},
		},
		"shares are of whole steps": {
			gpus: cards(1, 80*gi+mi-1),
			want: []gpu.Device{share(80*gi, 256*mi, mi), whole(80*gi + mi - 1)},
		},
		"steps count from the minimum": {
			gpus:   cards(1, 10*gi),
			change: func(o *Offer) { o.MemoryMin, o.MemoryStep = 3*gi, 2*gi },
			want:   []gpu.Device{share(9*gi, 3*gi, 2*gi), whole(10 * gi)},
		},
		"the minimum is all there is": {
			gpus: cards(1, 256*mi),
			want: []gpu.Device{share(256*mi, 256*mi, mi), whole(256 * mi)},
		},
		"what is reserved is not shared": {
			gpus:   cards(1, 10*gi),
			change: func(o *Offer) { o.Reserve = 2*gi + 1 },
			want:   []gpu.Device{share(8*gi-mi, 256*mi, mi), whole(10 * gi)},
		},
		"more is reserved than there is": {
			gpus:    cards(1, 10*gi),
			change:  func(o *Offer) { o.Reserve = 11 * gi },
			want:    []gpu.Device{whole(10 * gi)},
			problem: "GPU " + card(1, 0).UUID + " is not offered in shares: of its usable memory, 10737418240 bytes, 11811160064 are reserved",
		},
		"shares only": {
			gpus:   cards(1, 10*gi),
			change: func(o *Offer) { o.Whole = false },
			want:   []gpu.Device{share(10*gi, 256*mi, mi)},
		},
		"the whole only": {
			gpus:   cards(1, 10*gi),
			change: func(o *Offer) { o.Shares = false },
			want:   []gpu.Device{whole(10 * gi)},
		},
		"less memory than the smallest share": {
			gpus:    cards(1, 256*mi-1),
			want:    []gpu.Device{whole(256*mi - 1)},
			problem: "GPU " + card(1, 0).UUID + " is not offered in shares: of its usable memory, 268435455 bytes, 0 are reserved, and the smallest share is set to 268435456",
		},
		"no figure for memory": {
			gpus: []gpu.GPU{noFigure},
			want: []gpu.Device{whole(0)},
		},
		"two GPUs of one name": {
			gpus:    []gpu.GPU{twin, card(1, 80*gi)},
			want:    []gpu.Device{share(80*gi, 256*mi, mi), whole(80 * gi)},
			problem: "GPU " + twin.UUID + " is not offered: its device would have the name of GPU " + card(1, 0).UUID,
		},
		"no GPU": {},
	} {
		t.Run(name, func(t *testing.T) {
			all := offers(tc.gpus)
			if tc.change != nil {
				tc.change(&all[0])
			}
			got, problems := Devices(all)
			for i := range tc.want {
				tc.want[i].Pool = nodeName
				tc.want[i].MemoryIsolation, tc.want[i].ComputeIsolation = gpu.IsolationNone, gpu.IsolationNone
			}
			ignoreGPU := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".GPU" }, cmp.Ignore())
			if diff := cmp.Diff(tc.want, got, ignoreGPU); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			for _, d := range got {
				if d.GPU.UUID != card(1, 0).UUID {
					t.Errorf("device %s is of GPU %s", d.Name, d.GPU.UUID)
				}
			}
			checkProblems(t, problems, tc.problem)
		})
	}
}

func checkProblems(t *testing.T, problems []error, want string) {
	t.Helper()
	switch {
	case want == "" && len(problems) > 0:
		t.Errorf("problems: got %v, want none", problems)
	case want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Error(), want)):
		t.Errorf("problems: got %v, want one with %q", problems, want)
	}
}

func TestDevicesOrder(t *testing.T) {
	unified := card(9, 0)
	unified.Memory = nil
	first := card(7, 80*gi)
	first.PCIBusID = "0000:00:1f.0"
	gpus := append(cards(4, 80*gi), card(5, 24*gi), unified, first)
	want := []string{
		// Shares fill the smallest first, then go by address.
		"gpu-00000005-0000-slice",
		"gpu-00000007-0000-slice",
		"gpu-00000001-0000-slice",
		"gpu-00000002-0000-slice",
		"gpu-00000003-0000-slice",
		"gpu-00000004-0000-slice",
		// Whole GPUs are taken from the other end.
		"gpu-00000004-0000",
		"gpu-00000003-0000",
		"gpu-00000002-0000",
		"gpu-00000001-0000",
		"gpu-00000007-0000",
		"gpu-00000005-0000",
		"gpu-00000009-0000",
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		random.Shuffle(len(gpus), func(i, j int) { gpus[i], gpus[j] = gpus[j], gpus[i] })
		devices, _ := Devices(offers(gpus))
		if diff := cmp.Diff(want, names(devices)); diff != "" {
			t.Fatalf("order (-want +got):\n%s", diff)
		}
	}
}

// Shares pack from one end and whole GPUs are taken from the other, so both
// find room for as long as there is any.
func TestPlacement(t *testing.T) {
	schedulers(t, func(t *testing.T, features structured.Features) {
		s := schedulerFor(features, cards(3, 80*gi))
		expect := func(got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("device: got %q, want %q", got, want)
			}
		}
		for range 8 {
			_, result := s.MustAllocate(t, shareRequest(memory("10Gi")))
			expect(result.Device, "gpu-00000001-0000-slice")
		}
		_, whole := s.MustAllocate(t, wholeRequest())
		expect(whole.Device, "gpu-00000003-0000")
		_, ninth := s.MustAllocate(t, shareRequest(memory("10Gi")))
		expect(ninth.Device, "gpu-00000002-0000-slice")
		s.MustStayPending(t, wholeRequest())
	})
}
