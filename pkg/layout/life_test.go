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
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
	"github.com/memslice/memslice/pkg/publish/schedulertest"
)

// node is a node with its driver, without all that takes time: what claims are
// granted is there at once, and each look at the GPUs follows each change.
type node struct {
	t      *testing.T
	random *rand.Rand

	config *v1alpha1.NodeConfig
	gpus   []gpu.GPU
	made   map[string]bool        // instances, by UUID
	held   map[string][]gpu.Grant // by claim

	layout    Layout
	devices   map[string]gpu.Device // by pool and name
	scheduler *schedulertest.Scheduler

	instances int            // that there ever were
	count     map[string]int // of what has happened
}

// TestLife has claims come and go while the configuration changes, and the MIG
// modes and instances with claims and by an administrator's hand. At any time,
// each device that a claim holds is published, and no GPU is given away twice, or
// in a form that is not configured.
func TestLife(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, seed)
			for range 500 {
				switch n.random.IntN(10) {
				case 0, 1:
					n.configure()
				case 2, 3, 4, 5:
					n.allocate()
				case 6, 7, 8:
					n.release()
				case 9:
					n.administer()
				}
				n.look()
				n.check()
			}
			for _, what := range []string{"gpu", "slice", "mig", "static", "refused", "draining", "occupied", "enabled"} {
				if n.count[what] == 0 {
					t.Errorf("%s never happened: the test shows little; what did: %v", what, n.count)
				}
			}
		})
	}
}

func newNode(t *testing.T, seed uint64) *node {
	n := &node{
		t: t, random: rand.New(rand.NewPCG(seed, 3)), config: config(nil),
		made: map[string]bool{}, held: map[string][]gpu.Grant{}, count: map[string]int{},
	}
	noMIG := card()
	noMIG.MIG = nil
	for i, g := range []gpu.GPU{card(), ampere(card()), card(), noMIG} {
		g.UUID = fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i+1)
		n.gpus = append(n.gpus, g)
	}
	n.look()
	return n
}

// look is what happens at intervals.
func (n *node) look() {
	held := map[string][]gpu.Grant{}
	for _, claim := range slices.Sorted(maps.Keys(n.held)) {
		for _, g := range n.held[claim] {
			held[g.UUID] = append(held[g.UUID], g)
		}
	}
	decide := func() Layout {
		return Decide(Input{Node: "node", Config: n.config, GPUs: n.gpus, Held: held, Made: n.isMade})
	}
	n.layout = decide()
	for _, uuid := range n.layout.Enable {
		if len(held[uuid]) > 0 {
			n.t.Fatalf("MIG mode of GPU %s is to be turned on, and claims hold %v", uuid, held[uuid])
		}
		n.setMode(n.gpu(uuid), true)
		n.count["enabled"]++
	}
	if len(n.layout.Enable) > 0 {
		n.layout = decide()
	}
	devices, _ := publish.Devices(n.layout.Offers)
	n.devices = map[string]gpu.Device{}
	for _, d := range devices {
		n.devices[d.Pool+" "+d.Name] = d
		n.count[string(d.Withheld)]++
	}
	next := schedulertest.New(schedulertest.Latest(), "node", publish.Resources("node", devices))
	if n.scheduler == nil {
		n.scheduler = next
	}
	n.scheduler.Slices = next.Slices
}

func (n *node) isMade(uuid string, p gpu.Partition) bool {
	return slices.ContainsFunc(n.gpu(uuid).MIG.Instances, func(i gpu.Instance) bool { return i.Partition == p && n.made[i.UUID] })
}

func (n *node) gpu(uuid string) *gpu.GPU {
	return &n.gpus[slices.IndexFunc(n.gpus, func(g gpu.GPU) bool { return g.UUID == uuid })]
}

// setMode changes a copy: what was published stays as it was.
func (n *node) setMode(g *gpu.GPU, on bool) {
	if len(g.MIG.Instances) > 0 && !on {
		n.t.Fatalf("MIG mode of GPU %s is to be turned off, and it has %v", g.UUID, g.MIG.Instances)
	}
	mode := *g.MIG
	mode.Enabled, mode.Pending = on, on
	g.MIG = &mode
}

func (n *node) addInstance(g *gpu.GPU, p gpu.Partition) string {
	for _, i := range g.MIG.Instances {
		if i.Overlaps(p) {
			n.t.Fatalf("GPU %s has no room for %v: it has %v", g.UUID, p, g.MIG.Instances)
		}
	}
	n.instances++
	uuid := fmt.Sprint("MIG-", n.instances)
	mode := *g.MIG
	mode.Instances = append(slices.Clone(mode.Instances), gpu.Instance{UUID: uuid, Partition: p, GPUInstance: n.instances})
	g.MIG = &mode
	return uuid
}

func (n *node) removeInstance(g *gpu.GPU, same func(gpu.Instance) bool) {
	mode := *g.MIG
	mode.Instances = slices.DeleteFunc(slices.Clone(mode.Instances), same)
	g.MIG = &mode
}

// configure has a random configuration, of those that are valid.
func (n *node) configure() {
	one := func() v1alpha1.GPUConfig {
		var c v1alpha1.GPUConfig
		for _, form := range allForms {
			if n.random.IntN(2) == 0 {
				c.Offer = append(c.Offer, form)
			}
		}
		c.MIG.Mode = []v1alpha1.MIGMode{"", v1alpha1.MIGEnabled, v1alpha1.MIGOnDemand}[n.random.IntN(3)]
		if n.random.IntN(3) == 0 {
			c.MIG.Profiles = [][]string{{"1g.20gb"}, {"2g.40gb"}, {"2g.40gb", "7g.80gb"}}[n.random.IntN(3)]
		}
		c.Memory.Min = ptr.To(resource.MustParse([]string{"256Mi", "256Mi", "10Gi", "100Gi"}[n.random.IntN(4)]))
		c.Memory.Reserve = ptr.To(resource.MustParse([]string{"0", "1Gi", "90Gi"}[n.random.IntN(3)]))
		return c
	}
	for {
		c := &v1alpha1.NodeConfig{Defaults: one()}
		for i := range n.gpus {
			if n.random.IntN(3) == 0 {
				c.GPUs = append(c.GPUs, v1alpha1.GPURule{Match: v1alpha1.GPUMatch{UUIDs: []string{n.gpus[i].UUID}}, GPUConfig: one()})
			}
		}
		c.Default()
		if len(c.Validate(nil)) == 0 {
			n.config = c
			return
		}
	}
}

// allocate has the scheduler place a claim for one or two devices, which is then
// prepared.
func (n *node) allocate() {
	var requests []resourceapi.DeviceRequest
	for i := range 1 + n.random.IntN(2) {
		form := []gpu.Form{gpu.Slice, gpu.Whole, gpu.MIG, gpu.MIG}[n.random.IntN(4)]
		var capacity map[resourceapi.QualifiedName]string
		if form == gpu.Slice {
			capacity = map[resourceapi.QualifiedName]string{gpu.CapacityMemory: []string{"1Gi", "20Gi", "50Gi"}[n.random.IntN(3)]}
		}
		r := schedulertest.Request(form, capacity)
		r.Name = fmt.Sprint("r", i)
		requests = append(requests, r)
	}
	claim, results, err := n.scheduler.Allocate(requests...)
	if err != nil {
		n.t.Fatal(err)
	}
	if claim == "" {
		n.count["refused"]++
	}
	for _, r := range results {
		d := n.devices[r.Pool+" "+r.Device]
		memory := r.ConsumedCapacity[gpu.CapacityMemory]
		grant := gpu.Grant{
			Request: r.Request, Pool: r.Pool, Device: r.Device, Form: d.Form, UUID: d.GPU.UUID,
			Partition: d.Partition, Existing: d.Existing, Memory: memory.Value(),
		}
		n.prepare(d, grant)
		n.held[claim] = append(n.held[claim], grant)
	}
}

// prepare has of the hardware what a grant needs.
func (n *node) prepare(d gpu.Device, grant gpu.Grant) {
	n.allowed(d)
	g := n.gpu(grant.UUID)
	switch {
	case d.Existing != "":
		n.count["static"]++
	case d.Form == gpu.MIG:
		if d.MIGOnDemand && !g.MIG.Enabled {
			n.setMode(g, true)
		}
		n.made[n.addInstance(g, d.Partition)] = true
	case d.MIGOnDemand && g.MIG.Enabled:
		n.setMode(g, false)
	}
	if d.Existing == "" {
		n.count[string(d.Form)]++
	}
	if g.MIG != nil && g.MIG.Enabled != (d.Form == gpu.MIG) {
		n.t.Fatalf("%s was allocated, and MIG mode is on: %t", d.Name, g.MIG.Enabled)
	}
}

// allowed fails for a device in a form that is not configured.
func (n *node) allowed(d gpu.Device) {
	c := n.config.For(d.GPU.UUID, d.GPU.ProductName, d.GPU.Architecture)
	form := map[gpu.Form]v1alpha1.Form{gpu.Slice: v1alpha1.FormSlice, gpu.Whole: v1alpha1.FormGPU, gpu.MIG: v1alpha1.FormMIG}[d.Form]
	offered := slices.Contains(c.Offer, form)
	switch {
	case d.Existing != "":
		offered = !slices.Contains(c.Offer, v1alpha1.FormMIG)
	case d.Form == gpu.MIG && c.MIG.Profiles != nil:
		offered = offered && slices.Contains(c.MIG.Profiles, d.Profile.Name)
	}
	if !offered {
		n.t.Fatalf("%s (%s) was allocated, which is not configured: offer %v, profiles %v", d.Name, d.Existing, c.Offer, c.MIG.Profiles)
	}
}

// release ends a claim.
func (n *node) release() {
	claims := slices.Sorted(maps.Keys(n.held))
	if len(claims) == 0 {
		return
	}
	claim := claims[n.random.IntN(len(claims))]
	for _, grant := range n.held[claim] {
		if grant.Form == gpu.MIG && grant.Existing == "" {
			n.removeInstance(n.gpu(grant.UUID), func(i gpu.Instance) bool { return i.Partition == grant.Partition && n.made[i.UUID] })
		}
	}
	delete(n.held, claim)
	n.scheduler.Release(claim)
}

// administer does what an administrator may, to a GPU that no claim holds.
func (n *node) administer() {
	g := &n.gpus[n.random.IntN(len(n.gpus))]
	if g.MIG == nil || slices.ContainsFunc(n.grants(), func(h gpu.Grant) bool { return h.UUID == g.UUID }) {
		return
	}
	switch n.random.IntN(4) {
	case 0:
		n.removeInstance(g, func(gpu.Instance) bool { return true })
		n.setMode(g, !g.MIG.Enabled)
	case 1:
		n.removeInstance(g, func(gpu.Instance) bool { return true })
	case 2, 3:
		p := gpu.Partition{Profile: "1g.20gb", Start: n.random.IntN(4), Size: 1}
		if g.MIG.Enabled && !slices.ContainsFunc(g.MIG.Instances, func(i gpu.Instance) bool { return i.Overlaps(p) }) {
			n.addInstance(g, p)
		}
	}
}

func (n *node) grants() (all []gpu.Grant) {
	for _, grants := range n.held {
		all = append(all, grants...)
	}
	return all
}

// check looks at what claims hold, together.
func (n *node) check() {
	shared := map[string]int64{}
	grants := n.grants()
	for i, g := range grants {
		d, ok := n.devices[g.Pool+" "+g.Device]
		if !ok || d.Form != g.Form || d.Partition != g.Partition || d.Existing != g.Existing {
			n.t.Fatalf("%+v is held, and published is: %+v", g, d)
		}
		if g.Form == gpu.Slice {
			shared[g.UUID] += g.Memory
		}
		for _, h := range grants[:i] {
			if g.UUID == h.UUID && (g.Form != h.Form || g.Form == gpu.Whole || g.Form == gpu.MIG && g.Conflicts(h)) {
				n.t.Fatalf("held at once: %+v and %+v", g, h)
			}
		}
	}
	for uuid, memory := range shared {
		if total := n.gpu(uuid).Memory.Usable(); memory > int64(total) {
			n.t.Fatalf("shares of GPU %s have %d bytes, of %d", uuid, memory, total)
		}
	}
}
