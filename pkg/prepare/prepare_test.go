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
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/pkg/gpu"
)

func TestPrepare(t *testing.T) {
	h := newHost(t)
	p := h.plugin()
	share, whole, admin := grant("slice-0", 4*gib), grant("gpu-1", 80*gib), grant("slice-2", 0)
	share.Request, share.Compute, admin.AdminAccess = "r/large", 25, true
	plan := h.plan("a", share, whole, admin)
	product := resourceapi.DeviceAttribute{StringValue: ptr.To("H100")}
	want := []kubeletplugin.Device{
		{
			Requests: []string{"r/large"}, PoolName: "node", DeviceName: "slice-0", ShareID: ptr.To(types.UID("share-of-0")),
			CDIDeviceIDs: []string{"gpu.memslice.dev/claim=a-r-large-0"},
			Metadata: &kubeletplugin.DeviceMetadata{Attributes: map[string]resourceapi.DeviceAttribute{
				"uuid": {StringValue: ptr.To("GPU-0")}, "productName": product,
				"grantedMemoryBytes": {IntValue: ptr.To(4 * gib)}, "grantedComputePercent": {IntValue: ptr.To(int64(25))},
			}},
		},
		{
			Requests: []string{"r"}, PoolName: "node", DeviceName: "gpu-1",
			CDIDeviceIDs: []string{"gpu.memslice.dev/claim=a-r-1"},
			Metadata: &kubeletplugin.DeviceMetadata{Attributes: map[string]resourceapi.DeviceAttribute{
				"uuid": {StringValue: ptr.To("GPU-1")}, "productName": product, "grantedMemoryBytes": {IntValue: ptr.To(80 * gib)},
			}},
		},
		{
			Requests: []string{"r"}, PoolName: "node", DeviceName: "slice-2", ShareID: ptr.To(types.UID("share-of-2")),
			CDIDeviceIDs: []string{"gpu.memslice.dev/claim=a-r-2"},
			Metadata: &kubeletplugin.DeviceMetadata{Attributes: map[string]resourceapi.DeviceAttribute{
				"uuid": {StringValue: ptr.To("GPU-2")}, "productName": product,
			}},
		},
	}
	for _, time := range []string{"first", "second", "after a restart", "after a reboot"} {
		switch time {
		case "after a restart":
			p = h.plugin()
		case "after a reboot":
			h.reboot()
			p = h.plugin()
		}
		got, err := p.Prepare(h.context(), plan)
		if err != nil {
			t.Fatalf("%s: %v", time, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s time (-want +got):\n%s", time, diff)
		}
		h.want(time, "a")
	}
	for range 2 {
		if err := p.Unprepare(h.context(), "a"); err != nil {
			t.Error(err)
		}
		h.want("unprepared")
	}
}

func TestPrepareRewritesTheSpec(t *testing.T) {
	h := newHost(t)
	p := h.plugin()
	plan := h.plan("a", grant("slice-0", gib))
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), plan))
	path := filepath.Join(h.cdi, "gpu.memslice.dev-claim_a.json")
	original := must[[]byte](t)(os.ReadFile(path))
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), plan))
	if again := must[[]byte](t)(os.ReadFile(path)); string(again) != string(original) {
		t.Errorf("the spec is %s", again)
	}
}

func TestPrepareRefusesDoubleUse(t *testing.T) {
	h := newHost(t)
	p := h.plugin()
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("a", grant("slice-0", 50*gib))))
	for name, g := range map[string]gpu.Grant{"shares beyond the GPU": grant("slice-0", 31*gib), "whole beside a share": grant("gpu-0", 80*gib)} {
		_, err := p.Prepare(h.context(), h.plan("b", g))
		if err == nil || !strings.Contains(err.Error(), "claim ns/claim-a (50Gi memory)") {
			t.Errorf("%s: error %v, want one that names the holder", name, err)
		}
		h.want(name, "a")
	}
	// Another instance knows of it, too, and the claim itself is not in its own way.
	if _, err := h.plugin().Prepare(h.context(), h.plan("b", grant("slice-0", 31*gib))); err == nil {
		t.Error("another instance admits it")
	}
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("a", grant("slice-0", 50*gib))))
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("b", grant("slice-0", 30*gib))))
	h.want("filled", "a", "b")
}

// TestPrepareAnotherPlan is a record that does not say what the claim says.
func TestPrepareAnotherPlan(t *testing.T) {
	h := newHost(t)
	p := h.plugin()
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("a", grant("gpu-0", 80*gib))))
	got := must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("a", grant("slice-1", gib))))
	if got[0].DeviceName != "slice-1" {
		t.Errorf("got %v", got)
	}
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("b", grant("gpu-0", 80*gib))))
	if _, err := p.Prepare(h.context(), h.plan("c", grant("gpu-1", 80*gib))); err == nil {
		t.Error("the GPU of the new plan is free")
	}
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("a")))
	h.want("nothing granted any more", "b")
}

func TestPrepareWithoutDriver(t *testing.T) {
	h := newHost(t)
	p := h.plugin()
	h.driver = errors.New("device node /dev/nvidia0 is missing")
	if _, err := p.Prepare(h.context(), h.plan("a", grant("slice-0", gib))); !errors.Is(err, h.driver) || !strings.Contains(err.Error(), "ns/claim-a") {
		t.Errorf("error %v, want %v with the name of the claim", err, h.driver)
	}
	h.want("after the failure")
	h.driver = nil
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("a", grant("slice-0", gib))))

	// A claim that is prepared keeps what it has, and can be unprepared.
	h.driver = errors.New("not loaded")
	if _, err := p.Prepare(h.context(), h.plan("a", grant("slice-0", gib))); err == nil {
		t.Error("no error")
	}
	h.want("after the failure to prepare again", "a")
	if err := p.Unprepare(h.context(), "a"); err != nil {
		t.Errorf("with the driver unloaded: %v", err)
	}
	h.want("unprepared")
}

func TestUnprepareUnknown(t *testing.T) {
	h := newHost(t)
	victim := filepath.Join(filepath.Dir(h.claims), "victim.json")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []types.UID{"never-prepared", "../victim", ""} {
		if err := h.plugin().Unprepare(h.context(), uid); err != nil {
			t.Errorf("UID %q: %v", uid, err)
		}
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error(err)
	}
}

// TestLatePrepare is a call that was overtaken by the end of its claim.
func TestLatePrepare(t *testing.T) {
	h := newHost(t)
	p := h.plugin()
	plan := h.plan("a", grant("slice-0", gib))
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), plan))
	if err := p.Unprepare(h.context(), "a"); err != nil {
		t.Fatal(err)
	}
	// The claim lives and is used by another pod.
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), plan))
	if err := p.Unprepare(h.context(), "a"); err != nil {
		t.Fatal(err)
	}
	h.apiErr = errors.New("no route to host")
	if _, err := p.Prepare(h.context(), plan); !errors.Is(err, h.apiErr) {
		t.Errorf("error %v, want %v", err, h.apiErr)
	}
	h.apiErr = nil
	h.setInUse("a", false)
	if _, err := p.Prepare(h.context(), plan); err == nil || !strings.Contains(err.Error(), "claim ns/claim-a was unprepared") {
		t.Errorf("error %v, want one that says that the claim has ended", err)
	}
	h.want("refused")

	// A new instance cannot know, and cleans up.
	p = h.plugin()
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), plan))
	report := must[Report](t)(p.Reconcile(h.context()))
	if diff := cmp.Diff(Report{Unprepared: ended("a")}, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	h.want("reconciled")
}

func TestRecentIsBounded(t *testing.T) {
	var r recent
	for i := range 3 * recentSize {
		r.add(types.UID(fmt.Sprint(i)))
		r.add(types.UID(fmt.Sprint(i)))
	}
	if len(r.set) != recentSize || len(r.ring) != recentSize || !r.has(types.UID(fmt.Sprint(3*recentSize-1))) || !r.has(types.UID(fmt.Sprint(2*recentSize))) || r.has(types.UID(fmt.Sprint(2*recentSize-1))) {
		t.Errorf("%d and %d entries, want the last %d", len(r.set), len(r.ring), recentSize)
	}
}

func TestBootID(t *testing.T) {
	first, second := must[string](t)(BootID()), must[string](t)(BootID())
	if first != second || len(first) != 36 {
		t.Errorf("%q and %q, want one UUID", first, second)
	}
}
