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
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish/schedulertest"
)

// dividedOffer has an A30 in all forms.
func dividedOffer() Offer {
	g := divisibleCard(1)
	return Offer{
		GPU: g, Pool: PoolName(nodeName, &g), Shares: true, Whole: true, Profiles: g.MIG.Profiles,
		MemoryMin: 256 * mi, MemoryStep: mi,
	}
}

// sevenSlices are the usual profiles of an A100 or later, with what decides where
// they are put.
func sevenSlices(g *gpu.GPU) {
	profile := func(compute, memory, count int, starts ...int) gpu.Profile {
		return gpu.Profile{Name: fmt.Sprintf("%dg.%dgb", compute, 10*memory), ComputeSlices: compute, MemorySlices: memory, Count: count, Starts: starts}
	}
	g.MIG.Profiles = []gpu.Profile{
		profile(7, 8, 1, 0), profile(4, 4, 1, 0), profile(3, 4, 2, 0, 4), profile(2, 2, 3, 0, 2, 4),
		profile(1, 1, 7, 0, 1, 2, 3, 4, 5, 6), profile(1, 2, 4, 0, 2, 4, 6),
	}
}

func TestPartitions(t *testing.T) {
	existing := func(name, uuid string, start, size, instance, compute int) gpu.Instance {
		return gpu.Instance{UUID: uuid, Partition: gpu.Partition{Profile: name, Start: start, Size: size}, GPUInstance: instance, ComputeInstance: compute}
	}
	for name, test := range map[string]struct {
		change func(*Offer)
		want   string // the ends of names, with why a device is withheld
	}{
		"small ones first, all forms": {
			func(*Offer) {},
			"slice gpu 1g-6gb-0 1g-6gb-1 1g-6gb-2 1g-6gb-3 1g-6gb-me-0 1g-6gb-me-1 1g-6gb-me-2 1g-6gb-me-3 2g-12gb-0 2g-12gb-2 4g-24gb-0",
		},
		"where they are in the way of the fewest larger ones": {
			func(o *Offer) { sevenSlices(&o.GPU); o.Profiles = o.GPU.MIG.Profiles },
			"slice gpu 1g-10gb-6 1g-10gb-4 1g-10gb-5 1g-10gb-0 1g-10gb-1 1g-10gb-2 1g-10gb-3 " +
				"1g-20gb-6 1g-20gb-4 1g-20gb-0 1g-20gb-2 2g-20gb-4 2g-20gb-0 2g-20gb-2 3g-40gb-4 3g-40gb-0 4g-40gb-0 7g-80gb-0",
		},
		"in the way of what is offered only": {
			func(o *Offer) { sevenSlices(&o.GPU); o.Profiles = o.GPU.MIG.Profiles[3:5] },
			"slice gpu 1g-10gb-6 1g-10gb-0 1g-10gb-1 1g-10gb-2 1g-10gb-3 1g-10gb-4 1g-10gb-5 2g-20gb-0 2g-20gb-2 2g-20gb-4",
		},
		"profiles that are narrowed": {
			func(o *Offer) { o.Profiles, o.Shares = o.Profiles[1:2], false },
			"gpu 2g-12gb-0 2g-12gb-2",
		},
		"existing ones, as they are": {
			func(o *Offer) {
				o.Profiles, o.Shares, o.Whole = nil, false, false
				o.Instances = []gpu.Instance{
					existing("1g.6gb+me", "MIG-1", 0, 1, 3, 0),
					existing("2g.12gb", "MIG-2", 2, 2, 1, 0), existing("2g.12gb", "MIG-3", 2, 2, 1, 1),
					existing("1g.6gb", "", 1, 1, 4, -1),
				}
			},
			"1g-6gb-me-0 2g-12gb-2-0 2g-12gb-2-1",
		},
		"a place that is taken": {
			func(o *Offer) {
				o.Profiles = o.Profiles[:3]
				o.Occupied = []gpu.Partition{{Profile: "1g.6gb", Start: 1, Size: 1}}
			},
			"slice!occupied gpu!occupied 1g-6gb-0 1g-6gb-1!occupied 1g-6gb-2 1g-6gb-3 2g-12gb-0!occupied 2g-12gb-2 4g-24gb-0!occupied",
		},
		"engines that are taken": {
			func(o *Offer) {
				o.Profiles = o.Profiles[3:]
				o.Occupied = []gpu.Partition{{Profile: "1g.6gb+me", Start: 1, Size: 1}}
			},
			"slice!occupied gpu!occupied 1g-6gb-me-0!occupied 1g-6gb-me-1!occupied 1g-6gb-me-2!occupied 1g-6gb-me-3!occupied",
		},
		"a place that is taken by something unknown": {
			func(o *Offer) {
				o.Profiles = o.Profiles[1:2]
				o.Occupied = []gpu.Partition{{Profile: "?", Start: 3, Size: 1}}
			},
			"slice!occupied gpu!occupied 2g-12gb-0 2g-12gb-2!occupied",
		},
		"all withheld, for the reason that is given": {
			func(o *Offer) {
				o.Profiles, o.Withheld = o.Profiles[1:2], gpu.Draining
				o.Occupied = []gpu.Partition{{Profile: "1g.6gb", Start: 3, Size: 1}}
			},
			"slice!draining gpu!draining 2g-12gb-0!draining 2g-12gb-2!draining",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := dividedOffer()
			test.change(&o)
			devices, problems := Devices([]Offer{o})
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			var got []string
			for _, d := range devices {
				if d.Pool != o.Pool || d.GPU.UUID != o.GPU.UUID {
					t.Errorf("%s is in pool %s, of GPU %s", d.Name, d.Pool, d.GPU.UUID)
				}
				end, marked := strings.CutPrefix(d.Name, "gpu-00000001-0000-mig-")
				if marked != (d.Form == gpu.MIG) {
					t.Errorf("%s is of form %s", d.Name, d.Form)
				}
				if !marked {
					end = map[gpu.Form]string{gpu.Slice: "slice", gpu.Whole: "gpu"}[d.Form]
				}
				if d.Withheld != "" {
					end += "!" + string(d.Withheld)
				}
				got = append(got, end)
			}
			if diff := cmp.Diff(strings.Fields(test.want), got); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// Existing instances take nothing of a counter: there is nothing that they could
// exclude.
func TestExistingInstancesAreFree(t *testing.T) {
	o := dividedOffer()
	o.Profiles, o.Shares, o.Whole = nil, false, false
	for i, profile := range []string{"1g.6gb", "1g.6gb", "2g.12gb"} {
		o.Instances = append(o.Instances, gpu.Instance{
			UUID: fmt.Sprint("MIG-", i), GPUInstance: i, Memory: 6 * gi,
			Partition: gpu.Partition{Profile: profile, Start: i, Size: 1 + i/2},
		})
	}
	schedulers(t, func(t *testing.T, features structured.Features) {
		s := schedulerOf(features, []Offer{o})
		for range o.Instances {
			s.MustAllocate(t, migRequest())
		}
		s.MustStayPending(t, migRequest())
	})
}

// A claim that asks for an amount gets the smallest partition that has it.
func TestSmallestPartition(t *testing.T) {
	schedulers(t, func(t *testing.T, features structured.Features) {
		s := schedulerOf(features, []Offer{dividedOffer()})
		for _, test := range []struct{ selector, want string }{
			{fmt.Sprintf(`device.capacity[%q].memory.compareTo(quantity("8Gi")) > 0`, gpu.DriverName), "gpu-00000001-0000-mig-2g-12gb-0"},
			{fmt.Sprintf(`device.capacity[%q].jpegEngines.compareTo(quantity("1")) >= 0`, gpu.DriverName), "gpu-00000001-0000-mig-1g-6gb-me-2"},
			{fmt.Sprintf(`device.attributes[%q].multiprocessors >= 14`, gpu.DriverName), "gpu-00000001-0000-mig-1g-6gb-3"},
		} {
			if _, result := s.MustAllocate(t, migRequest(test.selector)); result.Device != test.want {
				t.Errorf("%s: got %s, want %s", test.selector, result.Device, test.want)
			}
		}
		s.MustStayPending(t, migRequest())
	})
}

// The node's pool comes before those of GPUs that can be divided, so these stay
// free for partitions for as long as there is room elsewhere.
func TestDivisibleComeLast(t *testing.T) {
	all := append([]Offer{dividedOffer()}, offers([]gpu.GPU{card(9, 80*gi)})...)
	schedulers(t, func(t *testing.T, features structured.Features) {
		expect := func(s *schedulertest.Scheduler, r resourceapi.DeviceRequest, want string) {
			t.Helper()
			if _, result := s.MustAllocate(t, r); result.Device != want {
				t.Errorf("got %s, want %s", result.Device, want)
			}
		}
		s := schedulerOf(features, all)
		expect(s, shareRequest(memory("1Gi")), "gpu-00000009-0000-slice")
		expect(s, shareRequest(memory("79Gi")), "gpu-00000009-0000-slice")
		expect(s, shareRequest(memory("1Gi")), "gpu-00000001-0000-slice")

		s = schedulerOf(features, all)
		expect(s, wholeRequest(), "gpu-00000009-0000")
		expect(s, wholeRequest(), "gpu-00000001-0000")
	})
}

// What is withheld is published, and given to nobody.
func TestOccupiedPlaces(t *testing.T) {
	o := dividedOffer()
	o.Occupied = []gpu.Partition{{Profile: "1g.6gb+me", Start: 1, Size: 1}}
	schedulers(t, func(t *testing.T, features structured.Features) {
		s := schedulerOf(features, []Offer{o})
		s.MustStayPending(t, shareRequest(memory("1Gi")))
		s.MustStayPending(t, wholeRequest())
		var got []string
		for range 3 {
			_, result := s.MustAllocate(t, migRequest())
			got = append(got, strings.TrimPrefix(result.Device, "gpu-00000001-0000-mig-"))
		}
		if want := []string{"1g-6gb-0", "1g-6gb-2", "1g-6gb-3"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		s.MustStayPending(t, migRequest())
	})
}
