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
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/catalog/gonvml"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
)

// TestLimits: what is published of each geometry, with all that a device can have
// and a taint on each, is within what the API allows. It refuses a slice that is
// not, and with it all of the GPU.
func TestLimits(t *testing.T) {
	theirs, err := gonvml.Geometries()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range models {
		for name, g := range map[string]*catalog.Geometry{key: geometry(t, key), key + " of go-nvml": theirs[key]} {
			t.Run(name, func(t *testing.T) {
				o := everyForm(card(1, 80*gi, g))
				numa := int64(1)
				o.GPU.PCIeRoot, o.GPU.NUMANode = "pci0000:00", &numa
				o.Ranks, o.Withheld = gpu.MaxRanks, gpu.Draining
				devices, problems := publish.Devices([]publish.Offer{o})
				if len(problems) > 0 {
					t.Fatal(problems)
				}
				pools := publish.Resources(node, devices).Pools
				if len(pools) != 2 {
					t.Errorf("%d pools, want the node's and the GPU's", len(pools))
				}
				checkPool(t, pools[o.Pool])
			})
		}
	}
}

func checkPool(t *testing.T, pool resourceslice.Pool) {
	sets := map[string]map[string]resourceapi.Counter{}
	for _, slice := range pool.Slices {
		if n := len(slice.SharedCounters); n > resourceapi.ResourceSliceMaxCounterSets {
			t.Errorf("a slice has %d counter sets", n)
		}
		if n := len(slice.Devices); n > resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures {
			t.Errorf("a slice has %d devices", n)
		}
		if len(slice.SharedCounters) > 0 && len(slice.Devices) > 0 {
			t.Error("a slice has both counters and devices")
		}
		for _, set := range slice.SharedCounters {
			sets[set.Name] = set.Counters
			if n := len(set.Counters); n > resourceapi.ResourceSliceMaxCountersPerCounterSet {
				t.Errorf("counter set %s has %d counters", set.Name, n)
			}
			for name := range set.Counters {
				checkLabel(t, name)
			}
		}
	}
	unique := map[string]bool{}
	for _, slice := range pool.Slices {
		for _, d := range slice.Devices {
			uuid := *d.Attributes["uuid"].StringValue
			if unique[d.Name] || strings.Contains(uuid, "/") && unique[uuid] {
				t.Errorf("two devices are %s, %s", d.Name, uuid)
			}
			unique[d.Name], unique[uuid] = true, true
			checkDevice(t, d, sets)
		}
	}
	if len(unique) == 0 {
		t.Error("nothing is published")
	}
}

func checkDevice(t *testing.T, d resourceapi.Device, sets map[string]map[string]resourceapi.Counter) {
	checkLabel(t, d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		t.Errorf("%s has %d attributes and capacities", d.Name, n)
	}
	for name, a := range d.Attributes {
		if a.StringValue != nil && len(*a.StringValue) > resourceapi.DeviceAttributeMaxValueLength {
			t.Errorf("%s: attribute %s is %d bytes long", d.Name, name, len(*a.StringValue))
		}
	}
	if uuid := *d.Attributes["uuid"].StringValue; strings.HasPrefix(d.Name, "gpu-00000001-0000-mig-") {
		want := fmt.Sprintf("%s/%s/%s", *d.Attributes["parentUUID"].StringValue, *d.Attributes["profile"].StringValue, d.Name[strings.LastIndex(d.Name, "-")+1:])
		if uuid != want {
			t.Errorf("%s: uuid is %s, want %s", d.Name, uuid, want)
		}
	}
	if len(d.ConsumesCounters) != 1 || len(d.Taints) != 1 {
		t.Errorf("%s consumes of %d counter sets and has %d taints, want one of each", d.Name, len(d.ConsumesCounters), len(d.Taints))
		return
	}
	consumed := d.ConsumesCounters[0]
	for name, c := range consumed.Counters {
		has, ok := sets[consumed.CounterSet][name]
		if !ok || c.Value.Sign() <= 0 || c.Value.Cmp(has.Value) > 0 {
			t.Errorf("%s consumes %s of counter %s, of which there are %s", d.Name, c.Value.String(), name, has.Value.String())
		}
	}
}

func checkLabel(t *testing.T, name string) {
	for _, problem := range validation.IsDNS1123Label(name) {
		t.Errorf("name %q: %s", name, problem)
	}
}
