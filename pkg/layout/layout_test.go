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
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
)

func TestDecide(t *testing.T) {
	noMIG := card()
	noMIG.MIG = nil
	pending := ampere(card())
	pending.MIG.Pending = true
	leaving := ampere(withInstance(first))
	leaving.MIG.Pending = false
	left := ampere(inMIGMode())
	left.MIG.Pending = false
	unfinished := withInstance(first)
	unfinished.MIG.Instances[0].UUID = ""
	mute := card()
	mute.CUDAComputeCapability = ""
	blind := inMIGMode()
	blind.MIG.Profiles = nil
	admin := adminOf(grant("node", slice, gpu.Slice))
	existing := grant(own, quarter+"0", gpu.MIG)
	existing.Partition, existing.Existing = first, "MIG-0"
	gone := existing
	gone.Existing = "MIG-9"
	parts := withParts()
	parts.MIG.Instances = parts.MIG.Instances[:2]
	part := grant(own, "gpu-00000001-0000-mig-1c-2g-40gb-0-1", gpu.MIG)
	part.Partition, part.Existing = gpu.Partition{Profile: "1c.2g.40gb", Start: 0, Size: 2}, "MIG-1"
	thirdHeld := grant(own, quarter+"2", gpu.MIG)
	thirdHeld.Partition = third
	fromOwn := func(device string, form gpu.Form) gpu.Grant { return grant(own, device, form) }
	amounts := func(min, reserve string) *v1alpha1.NodeConfig {
		return config(func(c *v1alpha1.GPUConfig) {
			c.Memory.Min, c.Memory.Reserve = ptr.To(resource.MustParse(min)), ptr.To(resource.MustParse(reserve))
		})
	}
	halves := func(mode v1alpha1.MIGMode, forms ...v1alpha1.Form) *v1alpha1.NodeConfig {
		return config(func(c *v1alpha1.GPUConfig) { c.Offer, c.MIG.Mode, c.MIG.Profiles = forms, mode, []string{"2g.40gb"} })
	}
	with := func(taint gpu.Withheld, names ...string) []string {
		var all []string
		for _, name := range names {
			all = append(all, name+" "+string(taint))
		}
		return all
	}
	for name, tc := range map[string]struct {
		gpu      gpu.GPU
		config   *v1alpha1.NodeConfig
		held     []gpu.Grant
		made     bool // the instances are memslice's
		pool     string
		devices  []string // with what they are withheld for
		onDemand bool     // of what is retained
		enable   bool
		problem  string
	}{
		"by default":                            {gpu: card(), pool: "node", devices: []string{slice, whole}},
		"shares only":                           {gpu: card(), config: offer("", v1alpha1.FormSlice), pool: "node", devices: []string{slice}},
		"the whole only":                        {gpu: card(), config: offer("", v1alpha1.FormGPU), pool: "node", devices: []string{whole}},
		"MIG where there is none":               {gpu: noMIG, config: offer("", v1alpha1.FormMIG), pool: "node", problem: "which this GPU has not; add Slice or GPU"},
		"all where there is no MIG":             {gpu: noMIG, config: offer(v1alpha1.MIGOnDemand, allForms...), pool: "node", devices: []string{slice, whole}},
		"an administrator's":                    {gpu: withInstance(first), pool: own, devices: quarters[:1]},
		"an administrator's, in parts":          {gpu: withParts(), pool: own, devices: []string{"gpu-00000001-0000-mig-1c-2g-40gb-0-0", "gpu-00000001-0000-mig-1c-2g-40gb-0-1", quarter + "2"}},
		"an administrator's, unfinished":        {gpu: unfinished, pool: own, problem: "has no instances"},
		"left over from claims that have ended": {gpu: withInstance(first), made: true, pool: own, problem: "has no instances"},
		"an administrator's, none":              {gpu: inMIGMode(), pool: own, problem: "has no instances; make some (nvidia-smi mig -i " + uuid},
		"keep, in MIG mode":                     {gpu: inMIGMode(), config: offer("", allForms...), pool: own, devices: partitions},
		"keep, not in MIG mode":                 {gpu: card(), config: offer("", allForms...), pool: "node", devices: []string{slice, whole}},
		"keep, MIG only, it is off":             {gpu: card(), config: offer("", v1alpha1.FormMIG), pool: "node", problem: "turn it on (nvidia-smi -i " + uuid + " -mig 1)"},
		"enabled, it is on":                     {gpu: inMIGMode(), config: offer(v1alpha1.MIGEnabled, v1alpha1.FormMIG), pool: own, devices: partitions},
		"enabled, it is off":                    {gpu: card(), config: offer(v1alpha1.MIGEnabled, v1alpha1.FormMIG), pool: "node", enable: true},
		"enabled, with admin access": {
			gpu: card(), config: offer(v1alpha1.MIGEnabled, v1alpha1.FormMIG), held: []gpu.Grant{admin}, pool: "node",
			problem: "not offered: MIG mode is turned on (mig.mode Enabled) once the claims that have " + slice + " for admin access have ended",
		},
		"enabled, a reset is needed": {
			gpu: pending, config: offer(v1alpha1.MIGEnabled, v1alpha1.FormMIG), pool: "node",
			problem: "MIG mode is off, and turned on with its next reset: run nvidia-smi --gpu-reset -i " + uuid + ", or reboot",
		},
		"enabled, a reset is not needed": {gpu: hopper(pending), config: offer(v1alpha1.MIGEnabled, v1alpha1.FormMIG), pool: "node", enable: true,
			problem: "MIG mode is off, and turned on with its next reset"},
		"keep, MIG only, a reset is needed":           {gpu: pending, config: offer("", v1alpha1.FormMIG), pool: "node", problem: "MIG mode is off, and turned on with its next reset"},
		"keep, a reset is needed":                     {gpu: pending, config: offer("", allForms...), pool: "node", devices: []string{slice, whole}, problem: "until then it is offered as the present mode allows"},
		"MIG turned on by others, a reset is needed":  {gpu: pending, pool: "node", devices: []string{slice, whole}, problem: "MIG mode is off, and turned on with its next reset"},
		"MIG turned off by others, a reset is needed": {gpu: leaving, pool: own, devices: quarters[:1], problem: "MIG mode is on, and turned off with its next reset: run nvidia-smi --gpu-reset -i " + uuid},
		"the same, without instances":                 {gpu: left, pool: own, problem: "MIG mode is on, and turned off with its next reset"},
		"MIG where an administrator turns it off":     {gpu: left, config: offer("", v1alpha1.FormMIG), pool: own, devices: partitions},
		"enabled, lost with a boot": {
			gpu: card(), config: offer(v1alpha1.MIGEnabled, v1alpha1.FormMIG), held: []gpu.Grant{heldPartition()}, pool: own, devices: partitions,
		},
		"on demand, it is off": {gpu: card(), config: offer(v1alpha1.MIGOnDemand, allForms...), pool: own, devices: slices.Concat([]string{slice, whole}, partitions)},
		"on demand, it is on":  {gpu: inMIGMode(), config: offer(v1alpha1.MIGOnDemand, allForms...), pool: own, devices: slices.Concat([]string{slice, whole}, partitions)},
		"on demand, where a reset is needed": {
			gpu: ampere(card()), config: offer(v1alpha1.MIGOnDemand, allForms...), pool: "node", devices: []string{slice, whole},
			problem: "mig.mode OnDemand is not possible: a GPU of compute capability 8.0 has to be reset",
		},
		"on demand, in MIG mode, where a reset is needed": {
			gpu: ampere(inMIGMode()), config: offer(v1alpha1.MIGOnDemand, allForms...), pool: own, devices: partitions, problem: "mig.mode OnDemand is not possible",
		},
		"on demand, of a generation that is not told": {
			gpu: mute, config: offer(v1alpha1.MIGOnDemand, allForms...), pool: "node", devices: []string{slice, whole}, problem: "a GPU of compute capability unknown",
		},
		"on demand, MIG only": {gpu: card(), config: offer(v1alpha1.MIGOnDemand, v1alpha1.FormMIG), pool: own, devices: partitions},
		"some profiles": {
			gpu: inMIGMode(), config: config(func(c *v1alpha1.GPUConfig) {
				c.Offer, c.MIG.Profiles = []v1alpha1.Form{v1alpha1.FormMIG}, []string{"2g.40gb"}
			}), pool: own, devices: []string{half + "0", half + "2"},
		},
		"a profile that there is not": {
			gpu: inMIGMode(), config: config(func(c *v1alpha1.GPUConfig) {
				c.Offer, c.MIG.Profiles = []v1alpha1.Form{v1alpha1.FormMIG}, []string{"2g.40gb", "7g.80gb"}
			}), pool: own, devices: []string{half + "0", half + "2"}, problem: `it has no profile "7g.80gb", but 1g.20gb, 2g.40gb`,
		},
		"a profile that there is not, before MIG mode is on": {
			gpu: card(), config: config(func(c *v1alpha1.GPUConfig) { c.Offer, c.MIG.Profiles = allForms, []string{"7g.80gb"} }),
			pool: "node", devices: []string{slice, whole}, problem: `it has no profile "7g.80gb", but 1g.20gb, 2g.40gb`,
		},
		"a driver that tells no profiles": {gpu: blind, config: offer("", v1alpha1.FormMIG), pool: own, problem: "the driver tells no MIG profiles"},
		"an instance that was made here":  {gpu: withInstance(first), made: true, config: offer("", v1alpha1.FormMIG), pool: own, devices: partitions},
		"an instance of a stranger": {
			gpu: withInstance(first), config: offer(v1alpha1.MIGOnDemand, allForms...), pool: own,
			devices: slices.Concat(with(gpu.Occupied, slice, whole, quarters[0]), quarters[1:], with(gpu.Occupied, half+"0"), []string{half + "2"}),
			problem: "MIG instance 0, 1g.20gb at memory slice 0, is not memslice's; what cannot be had beside it is withheld until it is destroyed (nvidia-smi mig -i " + uuid + " -dci -gi 0; nvidia-smi mig -i " + uuid + " -dgi -gi 0)",
		},
		"an instance of a stranger, in parts": {
			gpu: parts, config: offer("", v1alpha1.FormMIG), pool: own,
			devices: slices.Concat(with(gpu.Occupied, quarters[:2]...), quarters[2:], with(gpu.Occupied, half+"0"), []string{half + "2"}),
			problem: "MIG instance 0, 1c.2g.40gb at memory slice 0, is not memslice's",
		},
		"a share is held, and offered": {gpu: card(), held: []gpu.Grant{grant("node", slice, gpu.Slice)}, pool: "node", devices: []string{slice, whole}},
		"a share is held, the whole is wanted": {
			gpu: card(), config: offer("", v1alpha1.FormGPU), held: []gpu.Grant{grant("node", slice, gpu.Slice)}, pool: "node",
			devices: with(gpu.Draining, slice), problem: "its configuration (offer [GPU]) applies once the claims that hold " + slice + " have ended (grants: 1); until then no new claim gets any of it",
		},
		"a share is held, MIG is wanted": {
			gpu: card(), config: offer(v1alpha1.MIGEnabled, v1alpha1.FormMIG), held: []gpu.Grant{grant("node", slice, gpu.Slice)}, pool: "node",
			devices: with(gpu.Draining, slice), problem: "applies once",
		},
		"a share is held, also in another pool from now on": {
			gpu: card(), config: offer(v1alpha1.MIGOnDemand, allForms...), held: []gpu.Grant{grant("node", slice, gpu.Slice)}, pool: "node",
			onDemand: true,
			devices:  with(gpu.Draining, slice), problem: "applies once",
		},
		"the whole is held, shares are wanted": {
			gpu: card(), config: offer("", v1alpha1.FormSlice), held: []gpu.Grant{grant("node", whole, gpu.Whole)}, pool: "node",
			devices: with(gpu.Draining, whole), problem: "applies once",
		},
		"shares are held, which get too small": {
			gpu: card(), config: amounts("81Gi", "0"), held: []gpu.Grant{grant("node", slice, gpu.Slice), grant("node", slice, gpu.Slice)}, pool: "node",
			devices: with(gpu.Draining, slice), problem: "its configuration (memory.min 81Gi, memory.reserve 0) applies once the claims that hold " + slice + " have ended (grants: 2)",
		},
		"shares are held, and all is to be reserved": {
			gpu: card(), config: amounts("1Gi", "80Gi"), held: []gpu.Grant{grant("node", slice, gpu.Slice)}, pool: "node",
			devices: with(gpu.Draining, slice), problem: "memory.min 1Gi, memory.reserve 80Gi",
		},
		"a share is held, of other amounts": {gpu: card(), config: amounts("4Gi", "8Gi"), held: []gpu.Grant{grant("node", slice, gpu.Slice)}, pool: "node", devices: []string{slice, whole}},
		"a share and the whole are held by mistake": {
			gpu: card(), config: offer("", v1alpha1.FormSlice), held: []gpu.Grant{grant("node", slice, gpu.Slice), grant("node", whole, gpu.Whole)}, pool: "node",
			devices: with(gpu.Draining, slice, whole), problem: "applies once the claims that hold " + whole + " have ended (grants: 1)",
		},
		"the whole is held with admin access, shares are wanted": {
			gpu: card(), config: offer("", v1alpha1.FormSlice), held: []gpu.Grant{adminOf(grant("node", whole, gpu.Whole))}, pool: "node", devices: []string{slice},
		},
		"a share is held, in a pool that it leaves": {
			gpu: card(), held: []gpu.Grant{fromOwn(slice, gpu.Slice)}, pool: own, devices: with(gpu.Draining, slice), problem: "its configuration (offer [Slice GPU]) applies once",
		},
		"a share is held that changes the mode": {
			gpu: card(), config: offer(v1alpha1.MIGOnDemand, v1alpha1.FormGPU, v1alpha1.FormMIG), held: []gpu.Grant{fromOwn(slice, gpu.Slice)}, pool: own, onDemand: true,
			devices: with(gpu.Draining, slice), problem: "its configuration (offer [GPU MIG]) applies once",
		},
		"a partition is held, of a profile that is no longer wanted": {
			gpu: withInstance(first), made: true, held: []gpu.Grant{heldPartition()}, config: halves("", v1alpha1.FormMIG),
			pool: own, devices: with(gpu.Draining, quarters[0]), problem: "its configuration (mig.profiles [2g.40gb]) applies once the claims that hold " + quarters[0] + " have ended",
		},
		"the same, and the mode was lost with a boot": {
			gpu: card(), held: []gpu.Grant{heldPartition()}, config: halves(v1alpha1.MIGEnabled, v1alpha1.FormMIG), onDemand: true,
			pool: own, devices: with(gpu.Draining, quarters[0]), problem: "mig.profiles [2g.40gb]",
		},
		"the same, on demand": {
			gpu: card(), held: []gpu.Grant{heldPartition()}, config: halves(v1alpha1.MIGOnDemand, allForms...), onDemand: true,
			pool: own, devices: with(gpu.Draining, quarters[0]), problem: "mig.profiles [2g.40gb]",
		},
		"partitions are held, no more are wanted": {
			gpu: withInstance(first, third), made: true, held: []gpu.Grant{thirdHeld, heldPartition()}, pool: own, devices: with(gpu.Draining, quarters[0], quarters[2]),
			problem: "its configuration (offer [Slice GPU]) applies once the claims that hold " + quarters[0] + ", " + quarters[2] + " have ended (grants: 2)",
		},
		"a partition is held, and the mode is off": {
			gpu: card(), held: []gpu.Grant{heldPartition()}, pool: own, devices: with(gpu.Unavailable, quarters[0]),
			problem: "claims hold " + quarters[0] + ", which its MIG mode does not allow at present: it is off; turn it on (nvidia-smi -i " + uuid + " -mig 1)",
		},
		"a share is held, and the mode is on": {
			gpu: inMIGMode(), held: []gpu.Grant{grant("node", slice, gpu.Slice)}, pool: "node", devices: with(gpu.Unavailable, slice),
			problem: "does not allow at present: it is on; turn it off (nvidia-smi -i " + uuid + " -mig 0)",
		},
		"a share is held, the mode is on, and to stay on": {
			gpu: inMIGMode(), config: offer(v1alpha1.MIGEnabled, v1alpha1.FormMIG), held: []gpu.Grant{grant("node", slice, gpu.Slice)}, pool: "node", devices: with(gpu.Unavailable, slice),
			problem: "does not allow at present: it is on",
		},
		"a partition is held, of a GPU without MIG": {gpu: noMIG, held: []gpu.Grant{heldPartition()}, pool: own, problem: "does not allow at present: it is off"},
		"a partition is held, of a profile that there is not any more": {
			gpu: blind, config: offer("", v1alpha1.FormMIG), held: []gpu.Grant{heldPartition()}, pool: own, problem: "applies once",
		},
		"an administrator's is held": {gpu: withInstance(first), held: []gpu.Grant{existing}, pool: own, devices: quarters[:1]},
		"an administrator's is held, others are wanted": {
			gpu: withInstance(first), config: offer("", v1alpha1.FormMIG), held: []gpu.Grant{existing}, pool: own, devices: with(gpu.Draining, quarters[0]),
			problem: "its configuration (offer [MIG]) applies once",
		},
		"a part is held, others are wanted": {
			gpu: parts, config: offer("", v1alpha1.FormMIG), held: []gpu.Grant{part, part}, pool: own,
			devices: with(gpu.Draining, "gpu-00000001-0000-mig-1c-2g-40gb-0-0", "gpu-00000001-0000-mig-1c-2g-40gb-0-1"), problem: "applies once",
		},
		"an administrator's is held, and gone":     {gpu: withInstance(third), held: []gpu.Grant{gone}, pool: own, devices: quarters[2:3], problem: "claims hold " + quarters[0] + ", the MIG instances of which were destroyed; delete their pods"},
		"an administrator's is held, and replaced": {gpu: withInstance(first), held: []gpu.Grant{gone}, pool: own, devices: quarters[:1], problem: "the MIG instances of which were destroyed"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.config == nil {
				tc.config = config(nil)
			}
			l := Decide(Input{Node: "node", Config: tc.config, GPUs: []gpu.GPU{tc.gpu}, Held: map[string][]gpu.Grant{uuid: tc.held},
				Made: func(string, gpu.Partition) bool { return tc.made }})
			if len(l.Offers) != 1 || l.Offers[0].Pool != tc.pool {
				t.Errorf("offers: %+v, want one in pool %s", l.Offers, tc.pool)
			}
			if o := l.Offers[0]; o.Withheld != "" && o.MIGOnDemand != tc.onDemand {
				t.Errorf("the MIG mode changes with claims: %t, want it: %t", o.MIGOnDemand, tc.onDemand)
			}
			if diff := cmp.Diff(tc.devices, visible(l)); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			if tc.enable != slices.Equal(l.Enable, []string{uuid}) {
				t.Errorf("MIG mode to be turned on: %v, want it: %t", l.Enable, tc.enable)
			}
			switch {
			case tc.problem == "" && len(l.Problems) > 0:
				t.Errorf("problems: %v", l.Problems)
			case tc.problem != "" && (len(l.Problems) != 1 || !strings.Contains(l.Problems[0].Error(), tc.problem) || !strings.Contains(l.Problems[0].Error(), uuid)):
				t.Errorf("problems: %v, want one of the GPU with %q", l.Problems, tc.problem)
			}
		})
	}
}

// visible is the devices with what they are withheld for, shares and wholes
// first.
func visible(l Layout) []string {
	devices, _ := publish.Devices(l.Offers)
	var names []string
	for _, d := range devices {
		names = append(names, strings.TrimSpace(d.Name+" "+string(d.Withheld)))
	}
	return names
}

// The settings of the first rule that matches reach the offer, in the order of
// the GPUs.
func TestDecideSettings(t *testing.T) {
	rule := func(ranks int32, m v1alpha1.GPUMatch) v1alpha1.GPURule {
		return v1alpha1.GPURule{Match: m, GPUConfig: v1alpha1.GPUConfig{Ranks: &ranks}}
	}
	c := config(func(c *v1alpha1.GPUConfig) { c.Memory.Reserve = ptr.To(resource.MustParse("1Gi")) })
	c.GPUs = []v1alpha1.GPURule{
		rule(1, v1alpha1.GPUMatch{UUIDs: []string{uuid}}),
		rule(2, v1alpha1.GPUMatch{Products: []string{"*H100*"}}),
		rule(3, v1alpha1.GPUMatch{Architectures: []string{"Hopper"}}),
		rule(4, v1alpha1.GPUMatch{Architectures: []string{"Ampere"}, Products: []string{"NVIDIA A1?"}}),
	}
	var gpus []gpu.GPU
	for _, g := range []struct{ uuid, product, architecture string }{
		{"GPU-5", "NVIDIA A100", "Ampere"}, {"GPU-4", "NVIDIA A10", "Ampere"}, {"GPU-3", "NVIDIA H200", "Hopper"},
		{"GPU-2", "NVIDIA H100 80GB HBM3", "Hopper"}, {uuid, "NVIDIA H100 80GB HBM3", "Hopper"},
	} {
		gpus = append(gpus, gpu.GPU{UUID: g.uuid, ProductName: g.product, Architecture: g.architecture})
	}
	l := Decide(Input{Node: "node", Config: c, GPUs: gpus})
	if len(l.Problems) > 0 {
		t.Errorf("problems: %v", l.Problems)
	}
	for i, ranks := range []int{7, 4, 3, 2, 1} {
		want := publish.Offer{
			GPU: gpus[i], Pool: "node", Shares: true, Whole: true, Ranks: ranks,
			MemoryMin: 256 << 20, MemoryStep: 1 << 20, Reserve: 1 << 30, Isolation: gpu.IsolationNone,
		}
		if diff := cmp.Diff(want, l.Offers[i]); diff != "" {
			t.Errorf("offer %d (-want +got):\n%s", i, diff)
		}
	}
}

// What is said does not depend on the order of what is held: it would be
// reported again at each look.
func TestDecideIsDeterministic(t *testing.T) {
	other := card()
	other.UUID = "GPU-00000002-0000-4000-8000-000000000000"
	held := heldPartition()
	next := held
	next.Device, next.Partition = quarters[2], third
	decide := func(grants ...gpu.Grant) Layout {
		return Decide(Input{
			Node: "node", Config: offer("", v1alpha1.FormGPU), GPUs: []gpu.GPU{withInstance(first, third), other},
			Held: map[string][]gpu.Grant{uuid: grants}, Made: func(string, gpu.Partition) bool { return true },
		})
	}
	one, two := decide(held, next, held), decide(next, held, held)
	if diff := cmp.Diff(visible(one), visible(two)); diff != "" {
		t.Errorf("devices (-one +other):\n%s", diff)
	}
	if len(one.Problems) != 1 || len(two.Problems) != 1 || one.Problems[0].Error() != two.Problems[0].Error() {
		t.Errorf("problems: %v, and %v", one.Problems, two.Problems)
	}
}

// Where the driver does not say which instances there are, none is taken for
// destroyed.
func TestUnreadInstances(t *testing.T) {
	g := inMIGMode()
	g.MIG.Instances, g.MIG.Unread = nil, true
	grant := grant(own, quarter+"0", gpu.MIG)
	grant.Partition, grant.Existing = first, "MIG-0"
	for name, held := range map[string][]gpu.Grant{"held": {grant}, "nothing held": nil} {
		t.Run(name, func(t *testing.T) {
			l := Decide(Input{
				Node: "node", Config: offer("", v1alpha1.FormGPU), GPUs: []gpu.GPU{g},
				Held: map[string][]gpu.Grant{uuid: held}, Made: func(string, gpu.Partition) bool { return false },
			})
			if text := fmt.Sprint(l.Problems); len(l.Problems) != 1 || !strings.Contains(text, "does not tell which instances") {
				t.Errorf("problems: %s", text)
			}
		})
	}
}
