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

package prepare

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/memslice/memslice/pkg/gpu"
)

// TestReconcileRestoresInstances has an administrator destroy an instance, or
// the driver be reloaded, while the plugin runs or not.
func TestReconcileRestoresInstances(t *testing.T) {
	for name, tc := range map[string]struct {
		restart bool
		want    Report // a plugin that did not see it before cannot tell
	}{
		"while it runs":   {false, Report{Restored: []types.UID{"a"}}},
		"while it is off": {true, Report{}},
	} {
		t.Run(name, func(t *testing.T) {
			h, p := partitioned(t)
			before := h.instanceUUID(large)
			h.administrator(large, false)
			if tc.restart {
				p = h.plugin()
			}
			if report := must[Report](t)(p.Reconcile(h.context())); !cmp.Equal(report, tc.want) {
				t.Errorf("report %v, want %v", report, tc.want)
			}
			h.want("restored", "a", "b")
			after := h.instanceUUID(large)
			if text := specText(t, h, "a"); before == after || strings.Contains(text, before+`"`) || !strings.Contains(text, "/dev/"+after+`"`) {
				t.Errorf("instance %s was replaced by %s, and the spec is %s", before, after, text)
			}
			if report := must[Report](t)(p.Reconcile(h.context())); !cmp.Equal(report, Report{}) {
				t.Errorf("with nothing missing: %v", report)
			}
		})
	}
}

// TestReconcileLeavesSpecsAlone: what says the right thing is not written again.
func TestReconcileLeavesSpecsAlone(t *testing.T) {
	h, p := partitioned(t)
	h.driver = errors.New("a spec is made")
	must[Report](t)(p.Reconcile(h.context()))
}

func TestReconcileGoesOn(t *testing.T) {
	h, p := partitioned(t)
	h.administrator(small, true) // in the way of a
	h.administrator("mig-0-1-1", false)
	report, err := p.Reconcile(h.context())
	if err == nil || !strings.Contains(err.Error(), "claim ns/claim-a: restoring") || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("error %v, want one of claim a", err)
	}
	if diff := cmp.Diff(Report{Restored: []types.UID{"b"}}, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if records, files := h.left(); !slices.Equal(records, []types.UID{"a", "b"}) || !slices.Equal(files, []types.UID{"a", "b"}) {
		t.Errorf("records of %q, CDI specs of %q", records, files)
	}
}

// TestReconcileSweeps: what was made for nobody goes, what somebody else made
// stays.
func TestReconcileSweeps(t *testing.T) {
	h, _ := partitioned(t)
	h.administrator("mig-1-1-0", true)
	if err := os.Remove(filepath.Join(h.claims, "a.json")); err != nil {
		t.Fatal(err)
	}
	p := h.plugin()
	must[Report](t)(p.Reconcile(h.context()))
	h.want("swept", "b")
	if h.instanceUUID("mig-1-1-0") == "" {
		t.Error("the instance of an administrator is gone")
	}
}

// TestReconcileSparesDamagedRecords: the claim is in use, as far as is known, and
// gets the instances back that it had.
func TestReconcileSparesDamagedRecords(t *testing.T) {
	h, _ := partitioned(t)
	before := []string{h.instanceUUID(small), h.instanceUUID(large)}
	if err := os.Truncate(filepath.Join(h.claims, "a.json"), 10); err != nil {
		t.Fatal(err)
	}
	p := h.plugin()
	if report := must[Report](t)(p.Reconcile(h.context())); len(report.SetAside) != 1 {
		t.Fatalf("set aside: %v", report.SetAside)
	}
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), planA(h)))
	h.want("prepared again", "a", "b")
	if after := []string{h.instanceUUID(small), h.instanceUUID(large)}; !slices.Equal(before, after) {
		t.Errorf("instances %q, were %q", after, before)
	}
}

// TestForgets: what is remembered of CDI specs goes with the claims, whoever
// unprepares them.
func TestForgets(t *testing.T) {
	h, p := partitioned(t)
	if err := errors.Join(p.Unprepare(h.context(), "a"), h.plugin().Unprepare(h.context(), "b")); err != nil {
		t.Fatal(err)
	}
	must[Report](t)(p.Reconcile(h.context()))
	if len(p.specified) != 0 {
		t.Errorf("remembered: %v", p.specified)
	}
}

// TestWhenFreeSeesPartitions: what pkg/inventory asks before it changes a GPU.
func TestWhenFreeSeesPartitions(t *testing.T) {
	h, p := partitioned(t)
	for uuid, want := range map[string]bool{"GPU-0": false, "GPU-1": true} {
		if free, err := p.Store.WhenFree(h.context(), uuid, func() error { return nil }); free != want || err != nil {
			t.Errorf("%s is free: %v, %v; want %v", uuid, free, err, want)
		}
	}
	held := must[map[string][]gpu.Grant](t)(p.Store.Held(h.context()))
	if diff := cmp.Diff(map[string][]gpu.Grant{"GPU-0": {grant(small, 10*gib), grant(large, 40*gib), grant("mig-0-1-1", 10*gib)}}, held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}
