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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/nvidia"
)

// fakeNode stands for the hardware, the scheduler's view of it, and the
// prepared claims.
type fakeNode struct {
	gpus      []gpu.GPU
	err       error
	held      map[string]gpu.Form
	heldErr   error
	published []resourceslice.DriverResources
}

func (n *fakeNode) Scan(context.Context) (nvidia.Inventory, error) {
	// A copy: the scanned GPUs are the caller's.
	return nvidia.Inventory{GPUs: append([]gpu.GPU(nil), n.gpus...)}, n.err
}

func (n *fakeNode) HeldGPUs(context.Context) (map[string]gpu.Form, error) { return n.held, n.heldErr }

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
	mig.MIGEnabled = true
	const (
		slice1, whole1 = "gpu-00000001-0000-slice", "gpu-00000001-0000"
		slice2, whole2 = "gpu-00000002-0000-slice", "gpu-00000002-0000"
		taint          = " gpu.memslice.dev/unavailable:NoSchedule"
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
			{change: func(n *fakeNode) { n.held[one.UUID] = gpu.Slice }, visible: all, served: all},
			{
				change:  func(n *fakeNode) { n.gpus = []gpu.GPU{two} },
				visible: []string{slice1 + taint, slice2, whole2, whole1 + taint}, served: []string{slice2, whole2},
			},
			{change: func(n *fakeNode) { n.gpus = []gpu.GPU{one, two} }, visible: all, served: all},
		},
		"a held GPU that goes is dropped once it is free": {
			{change: func(n *fakeNode) { n.held[one.UUID] = gpu.Slice }, visible: all, served: all},
			{
				change:  func(n *fakeNode) { n.gpus = []gpu.GPU{two} },
				visible: []string{slice1 + taint, slice2, whole2, whole1 + taint}, served: []string{slice2, whole2},
			},
			{change: func(n *fakeNode) { delete(n.held, one.UUID) }, visible: []string{slice2, whole2}, served: []string{slice2, whole2}},
		},
		"the driver goes while a GPU is held": {
			{change: func(n *fakeNode) { n.held[one.UUID] = gpu.Slice }, visible: all, served: all},
			{change: func(n *fakeNode) { n.gpus, n.err = nil, noDriver }, visible: []string{slice1 + taint, whole1 + taint}, err: noDriver},
		},
		"what is held cannot be told, so everything may be": {
			{visible: all, served: all},
			{
				change:  func(n *fakeNode) { n.gpus, n.heldErr = []gpu.GPU{two}, errors.New("no lock") },
				visible: []string{slice1 + taint, slice2, whole2, whole1 + taint}, served: []string{slice2, whole2},
			},
		},
		"a GPU that stops telling its memory keeps its shares": {
			{visible: all, served: all},
			{change: func(n *fakeNode) { n.gpus = []gpu.GPU{blind, two} }, visible: all, served: all, silent: true},
		},
		"a GPU with shares that has not told its memory since the start is not given away as a whole": {
			{
				change:  func(n *fakeNode) { n.held[one.UUID], n.gpus = gpu.Slice, []gpu.GPU{blind, two} },
				visible: []string{slice2, whole2}, served: []string{slice2, whole2},
			},
			{change: func(n *fakeNode) { n.gpus = []gpu.GPU{one, two} }, visible: all, served: all},
		},
		"a GPU without a memory figure that is held as a whole stays": {
			{
				change:  func(n *fakeNode) { n.held[one.UUID], n.gpus = gpu.Whole, []gpu.GPU{blind, two} },
				visible: []string{slice2, whole2, whole1}, served: []string{slice2, whole2, whole1},
			},
		},
		"a held GPU that is put in MIG mode is tainted, also when it is lost then": {
			{change: func(n *fakeNode) { n.held[one.UUID] = gpu.Slice }, visible: all, served: all},
			{
				change:  func(n *fakeNode) { n.gpus = []gpu.GPU{mig, two} },
				visible: []string{slice1 + taint, slice2, whole2, whole1 + taint}, served: []string{slice2, whole2},
			},
			{
				change:  func(n *fakeNode) { n.gpus = []gpu.GPU{two} },
				visible: []string{slice1 + taint, slice2, whole2, whole1 + taint}, served: []string{slice2, whole2}, silent: true,
			},
			{change: func(n *fakeNode) { n.gpus = []gpu.GPU{one, two} }, visible: all, served: all},
		},
		"a free GPU that is put in MIG mode is not published": {
			{visible: all, served: all},
			{change: func(n *fakeNode) { n.gpus = []gpu.GPU{mig, two} }, visible: []string{slice2, whole2}, served: []string{slice2, whole2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := &fakeNode{gpus: []gpu.GPU{one, two}, held: map[string]gpu.Form{}}
			i := New(Options{Pool: "node", Scanner: node, Holders: node})
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
			node := &fakeNode{err: tc.scanErr}
			if tc.publisher == nil {
				tc.publisher = stopping{node, cancel}
			}
			err := New(Options{Pool: "node", Scanner: node, Holders: node}).Run(ctx, tc.publisher, time.Hour)
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
