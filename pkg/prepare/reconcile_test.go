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
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/memslice/memslice/pkg/state"
)

// prepared is a host on which a, b and c are.
func prepared(t *testing.T) (*host, *Preparer) {
	t.Helper()
	h := newHost(t)
	p := h.plugin()
	for _, uid := range []types.UID{"a", "b", "c"} {
		must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan(uid, grant("slice-0", 20*gib))))
	}
	return h, p
}

func TestReconcile(t *testing.T) {
	specOf := func(h *host, uid string) string { return filepath.Join(h.cdi, "gpu.memslice.dev-claim_"+uid+".json") }
	for name, tc := range map[string]struct {
		happens func(*host)
		want    Report
		left    []types.UID
		err     string
	}{
		"nothing": {happens: func(*host) {}, left: []types.UID{"a", "b", "c"}},
		"a claim is gone": {
			happens: func(h *host) { h.setInUse("b", false) },
			want:    Report{Unprepared: ended("b")},
			left:    []types.UID{"a", "c"},
		},
		"the API server does not answer": {
			happens: func(h *host) { h.setInUse("b", false); h.apiErr = errors.New("no route to host") },
			left:    []types.UID{"a", "b", "c"},
			err:     "claim ns/claim-b: no route to host",
		},
		"a spec is lost": {
			happens: func(h *host) { os.Remove(specOf(h, "b")) },
			want:    Report{Restored: []types.UID{"b"}},
			left:    []types.UID{"a", "b", "c"},
		},
		"a record is lost": {
			happens: func(h *host) { os.Remove(filepath.Join(h.claims, "b.json")) },
			want:    Report{Orphans: []types.UID{"b"}},
			left:    []types.UID{"a", "c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := prepared(t)
			tc.happens(h)
			report, err := h.plugin().Reconcile(h.context())
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, report); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			h.want("reconciled", tc.left...)
		})
	}
}

// TestReconcileFreesTheShare is the pod that was force-deleted with its claim
// while the node was away: the next one gets its place.
func TestReconcileFreesTheShare(t *testing.T) {
	h, p := prepared(t)
	next := h.plan("next", grant("slice-0", 40*gib))
	if _, err := p.Prepare(h.context(), next); err == nil {
		t.Fatal("there is room already")
	}
	h.setInUse("b", false)
	must[Report](t)(p.Reconcile(h.context()))
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), next))
}

func TestReconcileIntent(t *testing.T) {
	h, p := prepared(t)
	r := state.Record{UID: "d", Namespace: "ns", Name: "claim-d", Phase: state.Preparing, BootID: p.BootID, CreatedAt: p.Now()}
	r.Grants = append(r.Grants, grant("slice-0", gib))
	if err := p.Store.Do(h.context(), func(tx *state.Tx) error { return tx.Put(r) }); err != nil {
		t.Fatal(err)
	}
	h.setInUse("d", true)
	if report := must[Report](t)(p.Reconcile(h.context())); !cmp.Equal(report, Report{}) {
		t.Errorf("while the claim lives: %v", report)
	}
	h.setInUse("d", false)
	if report := must[Report](t)(p.Reconcile(h.context())); !cmp.Equal(report, Report{Unprepared: ended("d")}) {
		t.Errorf("when it is gone: %v", report)
	}
	h.want("reconciled", "a", "b", "c")
}

func TestReconcileAfterReboot(t *testing.T) {
	h, _ := prepared(t)
	h.reboot()
	p := h.plugin()
	if report := must[Report](t)(p.Reconcile(h.context())); !cmp.Equal(report, Report{}) {
		t.Errorf("set up from memory: %v", report)
	}
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("a", grant("slice-0", 20*gib))))
	if _, files := h.left(); !slices.Equal(files, []types.UID{"a"}) {
		t.Errorf("CDI specs of %q, want that of the claim that was prepared again", files)
	}
	// It is of this boot now.
	if err := os.RemoveAll(h.cdi); err != nil {
		t.Fatal(err)
	}
	if report := must[Report](t)(p.Reconcile(h.context())); !cmp.Equal(report, Report{Restored: []types.UID{"a"}}) {
		t.Errorf("when its spec is lost: %v", report)
	}
}

// TestReconcileDamagedRecord is reported once, harms no other claim, and the
// record is made anew from the claim.
func TestReconcileDamagedRecord(t *testing.T) {
	h, _ := prepared(t)
	if err := os.Truncate(filepath.Join(h.claims, "b.json"), 10); err != nil {
		t.Fatal(err)
	}
	p := h.plugin()
	report := must[Report](t)(p.Reconcile(h.context()))
	if len(report.SetAside) != 1 || report.SetAside[0].Name != "b.json" {
		t.Errorf("set aside: %v", report.SetAside)
	}
	if again := must[Report](t)(p.Reconcile(h.context())); len(again.SetAside) != 0 {
		t.Errorf("reported again: %v", again.SetAside)
	}
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("b", grant("slice-0", 20*gib))))
	h.want("prepared again", "a", "b", "c")
}

// TestReconcileIsOvertaken has the claim allocated and prepared again between
// the question whether it is gone and what is done about it.
func TestReconcileIsOvertaken(t *testing.T) {
	h, p := prepared(t)
	asked := 0
	p.InUse = func(_ context.Context, _, _ string, uid types.UID) (bool, error) {
		if uid == "b" {
			asked++
			return asked > 1, nil
		}
		return true, nil
	}
	if report := must[Report](t)(p.Reconcile(h.context())); !cmp.Equal(report, Report{}) {
		t.Errorf("report %v", report)
	}
	h.want("reconciled", "a", "b", "c")
}
