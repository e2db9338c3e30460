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
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/layout"
	"github.com/memslice/memslice/pkg/publish"
)

// publication is a way to publish GPUs, and the kinds of claims to measure with
// it. It is the node's configuration that says how to publish, as for users.
type publication struct {
	name   string
	what   string // in words
	claims []claimKind
	config v1alpha1.GPUConfig
	// firstOnly gives config to one GPU of each node. The others get the default.
	firstOnly bool
	// onePool puts all devices of a node into one pool, which memslice never does
	// with GPUs that are offered for MIG. byProfile also lists there the partitions
	// of all GPUs profile by profile rather than GPU by GPU.
	onePool, byProfile bool
}

// publications begins with the one that the others are compared with.
func publications() []publication {
	byDefault := offer(gpu.MaxRanks, v1alpha1.FormSlice, v1alpha1.FormGPU)
	all := offer(gpu.MaxRanks, v1alpha1.FormSlice, v1alpha1.FormGPU, v1alpha1.FormMIG)
	few := all
	few.MIG.Profiles = []string{"1g.10gb", "3g.40gb"}
	return []publication{
		{name: "shares", what: "shares, no ranks", claims: []claimKind{share}, config: offer(0, v1alpha1.FormSlice)},
		{name: "no-ranks", what: "shares and the whole, no ranks", claims: []claimKind{share}, config: offer(0, v1alpha1.FormSlice, v1alpha1.FormGPU)},
		{name: "default", what: "shares and the whole", claims: []claimKind{share, spread, whole}, config: byDefault},
		{name: "one-gpu", what: "as default, and one GPU of eight for MIG too", claims: []claimKind{share}, config: all, firstOnly: true},
		{name: "few-profiles", what: "shares, the whole and two MIG profiles", claims: []claimKind{share, partition}, config: few},
		{name: "mig", what: "shares, the whole and all MIG profiles", claims: []claimKind{share, spread, partition}, config: all},
		{name: "one-pool", what: "as mig, but in one pool per node (for comparison)", claims: []claimKind{share, partition}, config: all, onePool: true},
		{name: "by-profile", what: "as one-pool, partitions profile by profile (for comparison)", claims: []claimKind{share, partition}, config: all, onePool: true, byProfile: true},
	}
}

func offer(ranks int32, forms ...v1alpha1.Form) v1alpha1.GPUConfig {
	config := v1alpha1.GPUConfig{Offer: forms, Ranks: &ranks}
	if slices.Contains(forms, v1alpha1.FormMIG) {
		config.MIG.Mode = v1alpha1.MIGOnDemand
	}
	return config
}

// choose finds publications by name, in the order of the names; none are all.
func choose(names []string) ([]publication, error) {
	all := publications()
	if len(names) == 0 {
		return all, nil
	}
	var known []string
	for _, p := range all {
		known = append(known, p.name)
	}
	var chosen []publication
	for i, name := range names {
		at := slices.Index(known, name)
		switch {
		case at < 0:
			return nil, fmt.Errorf("--layouts: there is no %q, only %s", name, strings.Join(known, ", "))
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("--layouts: %q is there twice", name)
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

// resources are what the plugin would publish on the machine.
func (p publication) resources(m machine) (resourceslice.DriverResources, error) {
	decided := layout.Decide(layout.Input{Node: m.name, Config: p.nodeConfig(m), GPUs: m.gpus, Made: nothingMade})
	if p.onePool {
		for i := range decided.Offers {
			decided.Offers[i].Pool = m.name
		}
	}
	devices, problems := publish.Devices(decided.Offers)
	if err := errors.Join(append(decided.Problems, problems...)...); err != nil {
		return resourceslice.DriverResources{}, fmt.Errorf("publish layout %s on %s: %w", p.name, m.name, err)
	}
	if p.byProfile {
		slices.SortStableFunc(devices, func(a, b gpu.Device) int {
			return cmp.Or(cmp.Compare(a.Profile.MemorySlices, b.Profile.MemorySlices), cmp.Compare(a.Profile.Name, b.Profile.Name))
		})
	}
	return publish.Resources(m.name, devices), nil
}

func (p publication) nodeConfig(m machine) *v1alpha1.NodeConfig {
	config := &v1alpha1.NodeConfig{Defaults: p.config}
	if p.firstOnly {
		config.Defaults = v1alpha1.GPUConfig{}
		config.GPUs = []v1alpha1.GPURule{{Match: v1alpha1.GPUMatch{UUIDs: []string{m.gpus[0].UUID}}, GPUConfig: p.config}}
	}
	config.Default()
	return config
}

func nothingMade(string, gpu.Partition) bool { return false }
