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
	"testing"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
)

// TestNothingIsPulledAway has every configuration follow every other one, with
// whatever was given away under the former: each device that a claim holds is
// still published, and no claim gets another form of its GPU.
func TestNothingIsPulledAway(t *testing.T) {
	configs := map[string]*v1alpha1.NodeConfig{
		"default": config(nil), "shares": offer("", v1alpha1.FormSlice), "whole": offer("", v1alpha1.FormGPU),
		"partitions": offer("", v1alpha1.FormMIG), "always partitions": offer(v1alpha1.MIGEnabled, v1alpha1.FormMIG), "all": offer(v1alpha1.MIGOnDemand, allForms...),
		"halves": config(func(c *v1alpha1.GPUConfig) {
			c.Offer, c.MIG.Profiles = []v1alpha1.Form{v1alpha1.FormMIG}, []string{"2g.40gb"}
		}),
	}
	checked := 0
	for _, g := range []gpu.GPU{card(), withInstance(first)} {
		for before, former := range configs {
			for after, next := range configs {
				for _, made := range []bool{true, false} {
					decide := func(c *v1alpha1.NodeConfig, held ...gpu.Grant) []gpu.Device {
						l := Decide(Input{Node: "node", Config: c, GPUs: []gpu.GPU{g}, Held: map[string][]gpu.Grant{uuid: held}, Made: func(string, gpu.Partition) bool { return made }})
						devices, _ := publish.Devices(l.Offers)
						return devices
					}
					for _, given := range decide(former) {
						if given.Withheld != "" {
							continue
						}
						checked++
						held := gpu.Grant{Pool: given.Pool, Device: given.Name, Form: given.Form, UUID: uuid, Partition: given.Partition, Existing: given.Existing}
						check(t, fmt.Sprintf("from %s to %s, in MIG mode %t", before, after, g.MIG.Enabled), held, decide(next, held))
					}
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d changes were checked", checked)
	}
}

func check(t *testing.T, change string, held gpu.Grant, devices []gpu.Device) {
	t.Helper()
	published := false
	for _, d := range devices {
		if d.Pool == held.Pool && d.Name == held.Device && d.Existing == held.Existing {
			published = true
		}
	}
	if !published {
		t.Errorf("%s: %s in pool %s is held and no longer published: %v", change, held.Device, held.Pool, devices)
	}
	for _, d := range devices {
		if d.Pool != held.Pool {
			t.Errorf("%s: %s is held in pool %s, and %s is in pool %s: the scheduler counts them apart", change, held.Device, held.Pool, d.Name, d.Pool)
		}
	}
}
