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

package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/nvidia"
)

// fakeNode stands for the hardware, the scheduler's view of it, and the
// prepared claims.
type fakeNode struct {
	gpus      []gpu.GPU
	err       error
	held      map[string][]gpu.Grant
	heldErr   error
	config    *v1alpha1.NodeConfig
	configErr error
	modeErr   error
	published []resourceslice.DriverResources
	reported  []string
}

func newNode(gpus ...gpu.GPU) *fakeNode {
	n := &fakeNode{gpus: gpus, held: map[string][]gpu.Grant{}}
	n.configure(v1alpha1.NodeConfig{})
	return n
}

func (n *fakeNode) configure(c v1alpha1.NodeConfig) {
	c.Default()
	n.config = &c
}

// hold has a claim hold a device of a GPU.
func (n *fakeNode) hold(g gpu.GPU, form gpu.Form) {
	name := "gpu-" + g.ID()
	if form == gpu.Slice {
		name += "-slice"
	}
	n.held[g.UUID] = []gpu.Grant{{Request: "gpu", Pool: "node", Device: name, Form: form, UUID: g.UUID, Memory: 1 << 30}}
}

func (n *fakeNode) inventory() *Inventory {
	return New(Options{
		Node: "node", Hardware: n, Claims: n,
		Config: func(context.Context) (*v1alpha1.NodeConfig, error) { return n.config, n.configErr },
		Made:   func(string, gpu.Partition) bool { return false },
		Report: func(problem string) { n.reported = append(n.reported, problem) },
	})
}

func (n *fakeNode) Scan(context.Context) (nvidia.Inventory, error) {
	// A copy: the scanned GPUs are the caller's.
	return nvidia.Inventory{GPUs: append([]gpu.GPU(nil), n.gpus...)}, n.err
}

func (n *fakeNode) SetMIGMode(_ context.Context, uuid string, on bool) error {
	for i := range n.gpus {
		if g := &n.gpus[i]; g.UUID == uuid && n.modeErr == nil {
			mode := *g.MIG
			mode.Enabled, mode.Pending = on, on
			g.MIG = &mode
		}
	}
	return n.modeErr
}

func (n *fakeNode) Held(context.Context) (map[string][]gpu.Grant, error) { return n.held, n.heldErr }

func (n *fakeNode) WhenFree(_ context.Context, uuid string, fn func() error) (bool, error) {
	if len(n.held[uuid]) > 0 {
		return false, nil
	}
	return true, fn()
}

func (n *fakeNode) PublishResources(_ context.Context, r resourceslice.DriverResources) error {
	n.published = append(n.published, r)
	return nil
}

// visible lists the published devices, with what taints them.
func (n *fakeNode) visible() []string {
	var names []string
	for _, slice := range n.published[len(n.published)-1].Pools["node"].Slices {
		for _, d := range slice.Devices {
			name := d.Name
			for _, t := range d.Taints {
				name += " " + t.Key + ":" + string(t.Effect)
			}
			names = append(names, name)
		}
	}
	return names
}

func (n *fakeNode) look(t *testing.T, i *Inventory) {
	t.Helper()
	if err := i.Refresh(t.Context()); !errors.Is(err, n.err) {
		t.Fatalf("Refresh: got error %v, want %v", err, n.err)
	}
	if err := i.publish(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func card(n int) gpu.GPU {
	return gpu.GPU{
		UUID:     fmt.Sprintf("GPU-0000000%d-0000-0000-0000-000000000000", n),
		PCIBusID: fmt.Sprintf("0000:%02x:00.0", n),
		Memory:   &gpu.Memory{Total: 80 << 30},
	}
}

func TestInventory(t *testing.T) {
	noDriver := fmt.Errorf("%w: no library", nvidia.ErrDriverUnavailable)
	one, two := card(1), card(2)
	blind := card(1)
	blind.Memory = nil
	mig := card(1)
	mig.MIG = &gpu.MultiInstance{Enabled: true}
	const (
		slice1, whole1 = "gpu-00000001-0000-slice", "gpu-00000001-0000"
		slice2, whole2 = "gpu-00000002-0000-slice", "gpu-00000002-0000"
		taint          = " gpu.memslice.dev/unavailable:NoSchedule"
		draining       = " gpu.memslice.dev/draining:NoSchedule"
	)

	type step struct {
		change  func(*fakeNode)
		visible []string // after the step
		served  []string // found by Device
		err     error
		silent  bool // nothing new is published
	}
	all := []string{slice1, slice2, whole2, whole1}
	for name, steps := range map[string][]step{
		"what does not change is published once": {
			{visible: all, served: all},
			{visible: all, served: all, silent: true},
		},
		"the driver comes later": {
			{change: func(n *fakeNode) { n.gpus, n.err = nil, noDriver }, err: noDriver},
			{change: func(n *fakeNode) { n.gpus, n.err = []gpu.GPU{one, two}, nil }, visible: all, served: all},
		},
		"a free GPU that goes is not published": {
			{visible: all, served: all},
			{change: func(n *fakeNode) { n.gpus = []gpu.GPU{two} }, visible: []string{slice2, whole2}, served: []string{slice2, whole2}},
		},
		"a held GPU that goes is tainted until it returns": {
			{change: func(n *fakeNode) { n.hold(one, gpu.Slice) }, visible: all, served: all},
			{
				change:  func(n *fakeNode) { n.gpus = []gpu.GPU{two} },
				visible: []string{slice1 + taint, slice2, whole2, whole1 + taint}, served: []string{slice2, whole2},
			},
			{change: func(n *fakeNode) { n.gpus = []gpu.GPU{one, two} }, visible: all, served: all},
		},
		"a held GPU that goes is dropped once it is free": {
			{change: func(n *fakeNode) { n.hold(one, gpu.Slice) }, visible: all, served: all},
			{
				change:  func(n *fakeNode) { n.gpus = []gpu.GPU{two} },
				visible: []string{slice1 + taint, slice2, whole2, whole1 + taint}, served: []string{slice2, whole2},
			},
			{change: func(n *fakeNode) { delete(n.held, one.UUID) }, visible: []string{slice2, whole2}, served: []string{slice2, whole2}},
		},
		"the driver goes while a GPU is held": {
			{change: func(n *fakeNode) { n.hold(one, gpu.Slice) }, visible: all, served: all},
			{change: func(n *fakeNode) { n.gpus, n.err = nil, noDriver }, visible: []string{slice1 + taint, whole1 + taint}, err: noDriver},
		},
		"what is held cannot be told, so everything may be": {
			{visible: all, served: all},
			{
				change:  func(n *fakeNode) { n.gpus, n.heldErr = []gpu.GPU{two}, errors.New("no lock") },
				visible: []string{slice1 + taint, slice2, whole2, whole1 + taint}, served: []string{slice2, whole2},
			},
		},
		"what is held cannot be told, so no form is pulled away": {
			{visible: all, served: all},
			{
				change: func(n *fakeNode) {
					n.configure(v1alpha1.NodeConfig{Defaults: v1alpha1.GPUConfig{Offer: []v1alpha1.Form{v1alpha1.FormGPU}}})
					n.heldErr = errors.New("no lock")
				},
				visible: all, served: all, silent: true,
			},
			{change: func(n *fakeNode) { n.heldErr = nil }, visible: []string{whole2, whole1}, served: []string{whole2, whole1}},
		},
		"a GPU that stops telling its memory keeps its shares": {
			{visible: all, served: all},
			{change: func(n *fakeNode) { n.gpus = []gpu.GPU{blind, two} }, visible: all, served: all, silent: true},
		},
		"a GPU with shares that has not told its memory since the start is not given away as a whole": {
			{
				change:  func(n *fakeNode) { n.gpus = []gpu.GPU{blind, two}; n.hold(one, gpu.Slice) },
				visible: []string{slice2, whole2}, served: []string{slice2, whole2},
			},
			{change: func(n *fakeNode) { n.gpus = []gpu.GPU{one, two} }, visible: all, served: all},
		},
		"a GPU without a memory figure that is held as a whole stays": {
			{
				change:  func(n *fakeNode) { n.gpus = []gpu.GPU{blind, two}; n.hold(one, gpu.Whole) },
				visible: []string{slice2, whole2, whole1}, served: []string{slice2, whole2, whole1},
			},
		},
		"a held GPU that is put in MIG mode is tainted, also when it is lost then": {
			{change: func(n *fakeNode) { n.hold(one, gpu.Slice) }, visible: all, served: all},
			{
				change:  func(n *fakeNode) { n.gpus = []gpu.GPU{mig, two} },
				visible: []string{slice1 + taint, slice2, whole2}, served: []string{slice2, whole2},
			},
			{
				change:  func(n *fakeNode) { n.gpus = []gpu.GPU{two} },
				visible: []string{slice1 + taint, slice2, whole2}, served: []string{slice2, whole2}, silent: true,
			},
			{change: func(n *fakeNode) { n.gpus = []gpu.GPU{one, two} }, visible: all, served: all},
		},
		"a form that is no longer configured stays until it is free": {
			{change: func(n *fakeNode) { n.hold(one, gpu.Slice) }, visible: all, served: all},
			{
				change: func(n *fakeNode) {
					n.configure(v1alpha1.NodeConfig{Defaults: v1alpha1.GPUConfig{Offer: []v1alpha1.Form{v1alpha1.FormGPU}}})
				},
				visible: []string{slice1 + draining, whole2}, served: []string{slice1, whole2},
			},
			{change: func(n *fakeNode) { delete(n.held, one.UUID) }, visible: []string{whole2, whole1}, served: []string{whole2, whole1}},
		},
		"a wrong configuration changes nothing": {
			{visible: all, served: all},
			{change: func(n *fakeNode) { n.config, n.configErr = nil, errors.New("no such form") }, visible: all, served: all, silent: true},
		},
		"a free GPU that is put in MIG mode is not published": {
			{visible: all, served: all},
			{change: func(n *fakeNode) { n.gpus = []gpu.GPU{mig, two} }, visible: []string{slice2, whole2}, served: []string{slice2, whole2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode(one, two)
			i := node.inventory()
			if i.Err() == nil {
				t.Error("an inventory that has not looked says that it serves")
			}
			for n, s := range steps {
				if s.change != nil {
					s.change(node)
				}
				before := len(node.published)
				node.look(t, i)
				if diff := cmp.Diff(s.visible, node.visible()); diff != "" {
					t.Errorf("step %d: published (-want +got):\n%s", n, diff)
				}
				if s.silent != (len(node.published) == before) {
					t.Errorf("step %d: %d publications, want none to be %t", n, len(node.published)-before, s.silent)
				}
				var served []string
				for _, name := range all {
					if _, ok := i.Device("node", name); ok {
						served = append(served, name)
					}
				}
				if diff := cmp.Diff(s.served, served); diff != "" {
					t.Errorf("step %d: served (-want +got):\n%s", n, diff)
				}
				if err := i.Err(); !errors.Is(err, s.err) {
					t.Errorf("step %d: Err: got %v, want %v", n, err, s.err)
				}
			}
		})
	}
}

func TestWrongConfigurationFromTheStart(t *testing.T) {
	node := newNode(card(1))
	node.config, node.configErr = nil, errors.New("no such form")
	i := node.inventory()
	if err := i.Refresh(t.Context()); !errors.Is(err, node.configErr) || !errors.Is(i.Err(), node.configErr) {
		t.Errorf("Refresh: got %v, and then Err %v, want %v", err, i.Err(), node.configErr)
	}
}

// MIG mode is turned on by the inventory, but for a GPU that a claim holds.
func TestEnable(t *testing.T) {
	profile := gpu.Profile{Name: "7g.80gb", MemorySlices: 8, ComputeSlices: 7, Count: 1, Starts: []int{0}}
	const partition = "gpu-00000001-0000-mig-7g-80gb-0"
	inUse := errors.New("in use by process 1 (dcgm)")
	for name, tc := range map[string]struct {
		held    bool
		modeErr error
		want    bool   // partitions are offered
		problem string // that is reported
	}{
		"a free GPU":             {want: true},
		"a GPU that a claim has": {held: true, problem: "applies once the claims that hold gpu-00000001-0000-slice have ended"},
		"a GPU in use":           {modeErr: inUse, problem: inUse.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			g := card(1)
			g.MIG = &gpu.MultiInstance{Profiles: []gpu.Profile{profile}}
			node := newNode(g)
			node.modeErr = tc.modeErr
			node.configure(v1alpha1.NodeConfig{Defaults: v1alpha1.GPUConfig{
				Offer: []v1alpha1.Form{v1alpha1.FormMIG}, MIG: v1alpha1.MIGConfig{Mode: v1alpha1.MIGEnabled},
			}})
			if tc.held {
				node.hold(g, gpu.Slice)
			}
			i := node.inventory()
			for range 2 {
				node.look(t, i)
			}
			if _, ok := i.Device("node/gpu-00000001-0000", partition); ok != tc.want {
				t.Errorf("partition offered: %t, want %t", ok, tc.want)
			}
			if reported := strings.Join(node.reported, "\n"); tc.problem == "" && reported != "" || !strings.Contains(reported, tc.problem) {
				t.Errorf("reported: %q, want %q", node.reported, tc.problem)
			}
			if tc.problem != "" && len(node.reported) != 1 {
				t.Errorf("the problem was reported %d times, in two looks: %q", len(node.reported), node.reported)
			}
		})
	}
}

// What a changed configuration takes away is out of reach for a while before it
// goes, and MIG mode is not touched meanwhile.
func TestWithdraw(t *testing.T) {
	g := card(1)
	g.MIG = &gpu.MultiInstance{Profiles: []gpu.Profile{{Name: "7g.80gb", MemorySlices: 8, ComputeSlices: 7, Count: 1, Starts: []int{0}}}}
	node := newNode(g)
	clock := time.Unix(1000, 0)
	i := node.inventory()
	i.Grace, i.Now = 30*time.Second, func() time.Time { return clock }
	const slice, whole, partition = "gpu-00000001-0000-slice", "gpu-00000001-0000", "gpu-00000001-0000-mig-7g-80gb-0"
	const draining = " gpu.memslice.dev/draining:NoSchedule"
	expect := func(step string, visible, served []string) {
		t.Helper()
		node.look(t, i)
		if diff := cmp.Diff(visible, node.visible()); diff != "" {
			t.Errorf("%s: published in the node's pool (-want +got):\n%s", step, diff)
		}
		var got []string
		for _, name := range []string{slice, whole} {
			if _, ok := i.Device("node", name); ok {
				got = append(got, name)
			}
		}
		if _, ok := i.Device("node/"+whole, partition); ok {
			got = append(got, partition)
		}
		if diff := cmp.Diff(served, got); diff != "" {
			t.Errorf("%s: served (-want +got):\n%s", step, diff)
		}
	}
	expect("at first", []string{slice, whole}, []string{slice, whole})
	node.configure(v1alpha1.NodeConfig{Defaults: v1alpha1.GPUConfig{
		Offer: []v1alpha1.Form{v1alpha1.FormMIG}, MIG: v1alpha1.MIGConfig{Mode: v1alpha1.MIGEnabled},
	}})
	expect("changed", []string{slice + draining, whole + draining}, []string{slice, whole})
	clock = clock.Add(29 * time.Second)
	expect("a moment before", []string{slice + draining, whole + draining}, []string{slice, whole})
	clock = clock.Add(time.Second)
	expect("a while after", nil, []string{partition})
}

func TestRun(t *testing.T) {
	restart := fmt.Errorf("%w: %w", nvidia.ErrDriverUnavailable, nvidia.ErrRestartRequired)
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		scanErr   error
		publisher Publisher
		want      error
	}{
		"a missing driver is waited for":         {scanErr: nvidia.ErrDriverUnavailable},
		"a replaced library needs a new process": {scanErr: restart, want: nvidia.ErrRestartRequired},
		"publishing that cannot work ends it":    {publisher: refusing{refused}, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			node := newNode()
			node.err = tc.scanErr
			if tc.publisher == nil {
				tc.publisher = stopping{node, cancel}
			}
			err := node.inventory().Run(ctx, tc.publisher, time.Hour)
			if !errors.Is(err, tc.want) {
				t.Errorf("got error %v, want %v", err, tc.want)
			}
		})
	}
}

type refusing struct{ err error }

func (r refusing) PublishResources(context.Context, resourceslice.DriverResources) error {
	return r.err
}

// stopping ends the run once there is something published.
type stopping struct {
	*fakeNode
	cancel context.CancelFunc
}

func (s stopping) PublishResources(ctx context.Context, r resourceslice.DriverResources) error {
	s.cancel()
	return s.fakeNode.PublishResources(ctx, r)
}

// What a GPU has stopped telling of MIG is what it told last.
func TestRememberMIG(t *testing.T) {
	instances, profiles := []gpu.Instance{{UUID: "MIG-1"}}, []gpu.Profile{{Name: "1g.10gb"}}
	last := &gpu.MultiInstance{Enabled: true, Pending: true, Instances: instances, Profiles: profiles}
	for name, tc := range map[string]struct{ now, last, want *gpu.MultiInstance }{
		"all is told":            {&gpu.MultiInstance{Profiles: profiles}, last, &gpu.MultiInstance{Profiles: profiles}},
		"not its instances":      {&gpu.MultiInstance{Enabled: true, Profiles: profiles, Unread: true}, last, &gpu.MultiInstance{Enabled: true, Profiles: profiles, Instances: instances}},
		"nor ever":               {&gpu.MultiInstance{Unread: true}, &gpu.MultiInstance{Unread: true}, &gpu.MultiInstance{Unread: true}},
		"not its profiles":       {&gpu.MultiInstance{Enabled: true}, last, &gpu.MultiInstance{Enabled: true, Profiles: profiles}},
		"nothing":                {nil, last, nil},
		"for the first time":     {last, nil, last},
		"a GPU that has none":    {nil, nil, nil},
		"its instances are gone": {&gpu.MultiInstance{Enabled: true, Profiles: profiles}, last, &gpu.MultiInstance{Enabled: true, Profiles: profiles}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, rememberMIG(tc.now, tc.last)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
