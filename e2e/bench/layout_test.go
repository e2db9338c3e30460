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

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
)

// example is one machine, published.
func example(t *testing.T, p publication) []*resourceapi.ResourceSlice {
	t.Helper()
	machines, err := fleet(1)
	if err != nil {
		t.Fatal(err)
	}
	resources, err := p.resources(machines[0])
	if err != nil {
		t.Fatal(err)
	}
	return resourceSlices(machines[0].name, resources)
}

// The API server refuses what is beyond its limits, and the scheduler ignores a
// pool that is not consistent.
func TestPublicationsAreValid(t *testing.T) {
	for _, p := range publications() {
		t.Run(p.name, func(t *testing.T) {
			published := example(t, p)
			names, slicesOf, said := sets.New[string](), map[string]int64{}, map[string]int64{}
			counters := sets.New[string]() // of all pools: "pool counter-set counter"
			for _, s := range published {
				pool := s.Spec.Pool
				slicesOf[pool.Name]++
				said[pool.Name] = pool.ResourceSliceCount
				if names.Has(s.Name) || len(validation.IsDNS1123Subdomain(s.Name)) > 0 {
					t.Errorf("name %q is taken or refused", s.Name)
				}
				names.Insert(s.Name)
				if len(s.Spec.Devices) > resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures || len(s.Spec.SharedCounters) > resourceapi.ResourceSliceMaxCounterSets {
					t.Errorf("%s has %d devices and %d counter sets", s.Name, len(s.Spec.Devices), len(s.Spec.SharedCounters))
				}
				for _, set := range s.Spec.SharedCounters {
					for counter := range set.Counters {
						counters.Insert(strings.Join([]string{pool.Name, set.Name, counter}, " "))
					}
				}
			}
			for _, s := range published {
				for _, device := range s.Spec.Devices {
					if id := s.Spec.Pool.Name + " " + device.Name; names.Has(id) {
						t.Errorf("%s is there twice", id)
					} else {
						names.Insert(id)
					}
					for _, consumed := range device.ConsumesCounters {
						for counter := range consumed.Counters {
							if id := strings.Join([]string{s.Spec.Pool.Name, consumed.CounterSet, counter}, " "); !counters.Has(id) {
								t.Errorf("%s consumes of %s, which there is not", device.Name, id)
							}
						}
					}
				}
			}
			for pool, count := range slicesOf {
				if said[pool] != count {
					t.Errorf("pool %s says that it has %d slices and has %d", pool, said[pool], count)
				}
			}
		})
	}
}

// An H100 has 25 places for MIG instances, and 9 for 1g.10gb and 3g.40gb.
func TestWhatIsPublished(t *testing.T) {
	type shape struct{ devices, pools int }
	want := map[string]shape{
		"shares":       {8, 1},
		"no-ranks":     {16, 1},
		"default":      {16, 1},
		"one-gpu":      {16 + 25, 2},
		"few-profiles": {8 * (2 + 9), 9}, // that of the node is empty
		"mig":          {8 * (2 + 25), 9},
		"one-pool":     {8 * (2 + 25), 1},
		"by-profile":   {8 * (2 + 25), 1},
	}
	for _, p := range publications() {
		t.Run(p.name, func(t *testing.T) {
			var got shape
			pools := sets.New[string]()
			for _, s := range example(t, p) {
				got.devices += len(s.Spec.Devices)
				pools.Insert(s.Spec.Pool.Name)
			}
			got.pools = pools.Len()
			if got != want[p.name] {
				t.Errorf("got %+v, want %+v", got, want[p.name])
			}
		})
	}
}

// Shares and wholes stay in front, and 1g.10gb comes before what is larger.
func TestByProfile(t *testing.T) {
	chosen, err := choose([]string{"by-profile"})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, s := range example(t, chosen[0]) {
		for _, device := range s.Spec.Devices {
			text := *device.Attributes["type"].StringValue + " " + *device.Attributes["profile"].StringValue
			if len(order) == 0 || order[len(order)-1] != text {
				order = append(order, text)
			}
		}
	}
	want := []string{"slice none", "gpu none", "mig 1g.10gb", "mig 1g.10gb+me", "mig 1g.20gb", "mig 2g.20gb", "mig 3g.40gb", "mig 4g.40gb", "mig 7g.80gb"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestRanks(t *testing.T) {
	for name, want := range map[string]bool{"shares": false, "no-ranks": false, "default": true, "one-gpu": true, "mig": true} {
		t.Run(name, func(t *testing.T) {
			chosen, err := choose([]string{name})
			if err != nil {
				t.Fatal(err)
			}
			shares := 0
			for _, s := range example(t, chosen[0]) {
				for _, device := range s.Spec.Devices {
					if !strings.HasSuffix(device.Name, "-slice") {
						continue
					}
					shares++
					if _, got := device.Capacity["rank7"]; got != want {
						t.Errorf("%s has a capacity rank7: %t, want %t", device.Name, got, want)
					}
				}
			}
			if shares != gpusPerNode {
				t.Errorf("got %d shares, want %d", shares, gpusPerNode)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	for name, tc := range map[string]struct {
		names   []string
		want    string
		refusal string
	}{
		"all":              {nil, "shares no-ranks default one-gpu few-profiles mig one-pool by-profile", ""},
		"in their order":   {[]string{"mig", "shares"}, "mig shares", ""},
		"one that is not":  {[]string{"mig", "mag"}, "", `there is no "mag", only shares, no-ranks`},
		"the same again":   {[]string{"mig", "shares", "mig"}, "", `"mig" is there twice`},
		"an empty name":    {[]string{""}, "", `there is no ""`},
		"in another case":  {[]string{"MIG"}, "", `there is no "MIG"`},
		"several in a one": {[]string{"mig shares"}, "", `there is no "mig shares"`},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, err := choose(tc.names)
			var got []string
			for _, p := range chosen {
				got = append(got, p.name)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %v, want %s", got, tc.want)
			}
			if (err == nil) != (tc.refusal == "") || err != nil && !strings.Contains(err.Error(), tc.refusal) {
				t.Errorf("got error %v, want %q", err, tc.refusal)
			}
		})
	}
}
