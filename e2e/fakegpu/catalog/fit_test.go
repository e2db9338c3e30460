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

package catalog_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/catalog/gonvml"
)

// geometries are all that Fits decides about: the catalog's and go-nvml's.
func geometries(t *testing.T) map[string]*catalog.Geometry {
	t.Helper()
	theirs, err := gonvml.Geometries()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*catalog.Geometry{}
	for key, geometry := range theirs {
		model, err := catalog.Lookup(key)
		if err != nil {
			t.Fatal(err)
		}
		all[key], all[key+" by go-nvml"] = model.MIG, geometry
	}
	return all
}

// place reads "3g.20gb@4 1g.5gb@0".
func place(t *testing.T, g *catalog.Geometry, text string) []catalog.Placement {
	t.Helper()
	var all []catalog.Placement
	for part := range strings.FieldsSeq(text) {
		name, at, _ := strings.Cut(part, "@")
		i := slices.IndexFunc(g.Profiles, func(p catalog.Profile) bool { return p.Name == name })
		if i < 0 {
			t.Fatalf("no profile %q", name)
		}
		placement := catalog.Placement{Profile: g.Profiles[i].ID}
		if _, err := fmt.Sscan(at, &placement.Start); err != nil {
			t.Fatal(err)
		}
		all = append(all, placement)
	}
	return all
}

// fitsAll tells whether placements can be made one after the other.
func fitsAll(g *catalog.Geometry, all []catalog.Placement) bool {
	for i, placement := range all {
		if !g.Fits(all[:i], placement) {
			return false
		}
	}
	return true
}

// TestDocumentedConfigurations has the configurations that NVIDIA's MIG user
// guide lists for the A100 40GB: slices from the left, with the place of each.
func TestDocumentedConfigurations(t *testing.T) {
	model, err := catalog.Lookup("a100-sxm4-40gb")
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range []string{
		"7g.40gb@0",
		"4g.20gb@0 3g.20gb@4",
		"4g.20gb@0 2g.10gb@4 1g.5gb@6",
		"4g.20gb@0 1g.5gb@4 1g.5gb@5 1g.5gb@6",
		"3g.20gb@0 3g.20gb@4",
		"3g.20gb@0 2g.10gb@4 1g.5gb@6",
		"3g.20gb@0 1g.5gb@4 1g.5gb@5 1g.5gb@6",
		"2g.10gb@0 2g.10gb@2 3g.20gb@4",
		"2g.10gb@0 1g.5gb@2 1g.5gb@3 3g.20gb@4",
		"1g.5gb@0 1g.5gb@1 2g.10gb@2 3g.20gb@4",
		"1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 3g.20gb@4",
		"2g.10gb@0 2g.10gb@2 2g.10gb@4 1g.5gb@6",
		"2g.10gb@0 1g.5gb@2 1g.5gb@3 2g.10gb@4 1g.5gb@6",
		"1g.5gb@0 1g.5gb@1 2g.10gb@2 2g.10gb@4 1g.5gb@6",
		"2g.10gb@0 1g.5gb@2 1g.5gb@3 1g.5gb@4 1g.5gb@5 1g.5gb@6",
		"1g.5gb@0 1g.5gb@1 2g.10gb@2 1g.5gb@4 1g.5gb@5 1g.5gb@6",
		"1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 2g.10gb@4 1g.5gb@6",
		"1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 1g.5gb@4 1g.5gb@5 1g.5gb@6",
		"1g.10gb@0 1g.10gb@2 1g.10gb@4 1g.10gb@6",
	} {
		if !fitsAll(model.MIG, place(t, model.MIG, config)) {
			t.Errorf("%s does not fit", config)
		}
	}
}

func TestFitsRefuses(t *testing.T) {
	for name, test := range map[string]struct{ model, existing, wanted string }{
		"the same place":           {"a100-sxm4-40gb", "1g.5gb@0", "1g.5gb@0"},
		"memory in common":         {"a100-sxm4-40gb", "1g.5gb@3", "4g.20gb@0"},
		"no such start":            {"a100-sxm4-40gb", "", "2g.10gb@1"},
		"compute slices used up":   {"a100-sxm4-40gb", "4g.20gb@0 2g.10gb@4 1g.5gb@6", "1g.5gb@7"},
		"the whole GPU":            {"a100-sxm4-40gb", "1g.5gb@6", "7g.40gb@0"},
		"second of one":            {"a100-sxm4-40gb", "1g.5gb+me@0", "1g.5gb+me@1"},
		"engines used up":          {"a30", "2g.12gb+me@0", "1g.6gb+me@2"},
		"compute, on free memory":  {"h100-sxm5-80gb", "4g.40gb@0 2g.20gb@4 1g.10gb@6", "1g.20gb@6"},
		"beside an unknown thing":  {"h100-sxm5-80gb", "unknown", "1g.10gb@6"},
		"an unknown thing":         {"h100-sxm5-80gb", "", "unknown"},
		"whole GPU in place of 3g": {"b200-sxm6-180gb", "3g.90gb@4", "7g.180gb@0"},
	} {
		t.Run(name, func(t *testing.T) {
			model, err := catalog.Lookup(test.model)
			if err != nil {
				t.Fatal(err)
			}
			parse := func(text string) []catalog.Placement {
				if text == "unknown" {
					return []catalog.Placement{{Profile: 99}}
				}
				return place(t, model.MIG, text)
			}
			existing := parse(test.existing)
			if test.existing != "unknown" && !fitsAll(model.MIG, existing) {
				t.Fatalf("%s does not fit by itself", test.existing)
			}
			if model.MIG.Fits(existing, parse(test.wanted)[0]) {
				t.Errorf("%s fits beside %q", test.wanted, test.existing)
			}
		})
	}
}

// TestInstanceCounts: NVML says how many instances of each profile fit on an
// empty GPU, and so do Fits and Remaining.
func TestInstanceCounts(t *testing.T) {
	for key, g := range geometries(t) {
		for _, p := range g.Profiles {
			if got := g.Remaining(nil, p.ID); got != p.Instances {
				t.Errorf("%s: %d instances of %s fit, want %d", key, got, p.Name, p.Instances)
			}
		}
		if got := g.Remaining(nil, 99); got != 0 {
			t.Errorf("%s: %d instances of an unknown profile fit", key, got)
		}
	}
}

// TestFitsIsOrderless fills GPUs at random: what fits in one order fits in
// every other, what was refused is still refused when more exists, and
// Remaining is what can be added.
func TestFitsIsOrderless(t *testing.T) {
	for key, g := range geometries(t) {
		var places []catalog.Placement
		for _, p := range g.Profiles {
			for _, start := range p.Starts {
				places = append(places, catalog.Placement{Profile: p.ID, Start: start})
			}
		}
		for seed := range uint64(200) {
			random := rand.New(rand.NewPCG(seed, 0))
			var made, refused []catalog.Placement
			for _, i := range random.Perm(len(places)) {
				if g.Fits(made, places[i]) {
					made = append(made, places[i])
				} else {
					refused = append(refused, places[i])
				}
			}
			for _, placement := range refused {
				if g.Fits(made, placement) {
					t.Fatalf("%s: %+v was refused and fits beside more: %+v", key, placement, made)
				}
				if g.Remaining(made, placement.Profile) != 0 {
					t.Fatalf("%s: a full GPU has room for profile %d", key, placement.Profile)
				}
			}
			random.Shuffle(len(made), func(i, j int) { made[i], made[j] = made[j], made[i] })
			if !fitsAll(g, made) {
				t.Fatalf("%s: another order does not fit: %+v", key, made)
			}
		}
	}
}

func TestComputeProfiles(t *testing.T) {
	for name, test := range map[string]struct{ model, profile, want string }{
		"A100 7g":  {"a100-sxm4-40gb", "7g.40gb", "1c.7g.40gb:7@14 2c.7g.40gb:3@28 3c.7g.40gb:2@42 4c.7g.40gb:1@56 7g.40gb:1@98"},
		"A100 4g":  {"a100-sxm4-40gb", "4g.20gb", "1c.4g.20gb:4@14 2c.4g.20gb:2@28 4g.20gb:1@56"},
		"A100 3g":  {"a100-sxm4-40gb", "3g.20gb", "1c.3g.20gb:3@14 2c.3g.20gb:1@28 3g.20gb:1@42"},
		"A30 2g":   {"a30", "2g.12gb", "1c.2g.12gb:2@14 2g.12gb:1@28"},
		"H100 3g":  {"h100-sxm5-80gb", "3g.40gb", "1c.3g.40gb:3@16 2c.3g.40gb:1@32 3g.40gb:1@60"},
		"H100 1g2": {"h100-sxm5-80gb", "1g.20gb", "1g.20gb:1@26"},
	} {
		t.Run(name, func(t *testing.T) {
			model, err := catalog.Lookup(test.model)
			if err != nil {
				t.Fatal(err)
			}
			profile, _ := model.MIG.ByID(place(t, model.MIG, test.profile+"@0")[0].Profile)
			var got []string
			for _, c := range model.MIG.ComputeProfiles(profile) {
				if found, ok := model.MIG.Compute(profile, c.ID); !ok || found != c {
					t.Errorf("Compute(%d) = %+v, %t", c.ID, found, ok)
				}
				got = append(got, fmt.Sprintf("%s:%d@%d", c.Name, c.Instances, c.Multiprocessors))
			}
			if text := strings.Join(got, " "); text != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
		})
	}
}
