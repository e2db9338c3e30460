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
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/memslice/memslice/pkg/golden"
	"github.com/memslice/memslice/pkg/gpu"
)

func TestResourcesGolden(t *testing.T) {
	devices, problems := Devices(mixedOffers())
	if len(problems) != 1 {
		t.Errorf("problems: got %v, want one for the tiny GPU", problems)
	}
	got, err := yaml.Marshal(Resources(nodeName, devices))
	if err != nil {
		t.Fatal(err)
	}
	const path = "testdata/mixed.yaml"
	golden.Check(t, path, got)
}

// The API refuses slices beyond its limits, and with them all of the node.
func TestResourcesLimits(t *testing.T) {
	dnsLabel := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	for _, n := range []int{0, 1, 8, 9, 32, 33, 70} {
		devices, _ := Devices(offers(cards(n, 80*gi)))
		resources := Resources(nodeName, devices)
		var published []string
		counterSets := map[string]bool{}
		if len(resources.Pools[nodeName].Slices) == 0 {
			t.Errorf("%d GPUs: no slice, as if the driver were not there", n)
		}
		for _, slice := range resources.Pools[nodeName].Slices {
			if len(slice.SharedCounters) > 0 && len(slice.Devices) > 0 {
				t.Errorf("%d GPUs: a slice has both counters and devices", n)
			}
			if got := len(slice.SharedCounters); got > resourceapi.ResourceSliceMaxCounterSets {
				t.Errorf("%d GPUs: a slice has %d counter sets", n, got)
			}
			if got := len(slice.Devices); got > 64 {
				t.Errorf("%d GPUs: a slice has %d devices", n, got)
			}
			for _, set := range slice.SharedCounters {
				counterSets[set.Name] = true
			}
			for _, d := range slice.Devices {
				published = append(published, d.Name)
				if !dnsLabel.MatchString(d.Name) {
					t.Errorf("device name %q is no DNS label", d.Name)
				}
				if got := len(d.Attributes) + len(d.Capacity); got > resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
					t.Errorf("device %s has %d attributes and capacities", d.Name, got)
				}
				if set := d.ConsumesCounters[0].CounterSet; !counterSets[set] {
					t.Errorf("device %s consumes of counter set %q, which is not there before it", d.Name, set)
				}
			}
		}
		if len(counterSets) != n {
			t.Errorf("%d GPUs: got %d counter sets", n, len(counterSets))
		}
		if diff := cmp.Diff(names(devices), published); diff != "" {
			t.Errorf("%d GPUs: order of devices (-want +got):\n%s", n, diff)
		}
	}
}

func TestAttributeText(t *testing.T) {
	for name, tc := range map[string]struct{ value, want string }{
		"as it is":             {"NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"},
		"as long as it may be": {strings.Repeat("x", 64), strings.Repeat("x", 64)},
		"cut":                  {strings.Repeat("x", 65), strings.Repeat("x", 64)},
		"cut between runes":    {strings.Repeat("x", 63) + "é", strings.Repeat("x", 63)},
		"not UTF-8":            {"NVIDIA\xff H100", "NVIDIA H100"},
		"nothing to tell":      {"", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			d := gpu.Device{Form: gpu.Whole, GPU: &gpu.GPU{ProductName: tc.value}}
			if got := *Attributes(d)["productName"].StringValue; got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
