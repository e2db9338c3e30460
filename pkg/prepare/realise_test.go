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

	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/gpu"
)

const (
	small = "mig-0-1-0"
	large = "mig-0-4-4"
)

// partitioned is a host on which claim a has a small and a large partition of
// one GPU, and b has a neighbour of theirs.
func partitioned(t *testing.T) (*host, *Preparer) {
	t.Helper()
	h := newHost(t)
	p := h.plugin()
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), planA(h)))
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("b", grant("mig-0-1-1", 10*gib))))
	h.want("prepared", "a", "b")
	return h, p
}

func planA(h *host) claim.Plan { return h.plan("a", grant(small, 10*gib), grant(large, 40*gib)) }

func specText(t *testing.T, h *host, uid string) string {
	t.Helper()
	return string(must[[]byte](t)(os.ReadFile(filepath.Join(h.cdi, "gpu.memslice.dev-claim_"+uid+".json"))))
}

func uuidOf(d kubeletplugin.Device) string { return *d.Metadata.Attributes["uuid"].StringValue }

func TestPreparePartitions(t *testing.T) {
	h := newHost(t)
	p := h.plugin()
	var before []string
	for _, time := range []string{"first", "second", "after a restart", "after a reboot"} {
		switch time {
		case "after a restart":
			p = h.plugin()
		case "after a reboot":
			h.reboot()
			p = h.plugin()
		}
		devices := must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), planA(h)))
		h.want(time, "a")
		uuids := []string{uuidOf(devices[0]), uuidOf(devices[1])}
		if want := []string{h.instanceUUID(small), h.instanceUUID(large)}; !slices.Equal(uuids, want) {
			t.Errorf("%s time: the kubelet is told of %q, on the GPU are %q", time, uuids, want)
		}
		for _, uuid := range uuids {
			if !strings.Contains(specText(t, h, "a"), "/dev/"+uuid) {
				t.Errorf("%s time: instance %s is not in the CDI spec", time, uuid)
			}
		}
		if same := slices.Equal(before, uuids); before != nil && same != (time != "after a reboot") {
			t.Errorf("%s time: instances %q, before they were %q", time, uuids, before)
		}
		before = uuids
	}
	if err := p.Unprepare(h.context(), "a"); err != nil {
		t.Error(err)
	}
	h.want("unprepared")
}

// TestRealiseKnowsOthers: what is held on the GPU by others and by the claim
// itself, but not what an administrator looks at.
func TestRealiseKnowsOthers(t *testing.T) {
	h, p := partitioned(t)
	look := grant(small, 0)
	look.AdminAccess = true
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("look", look)))
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), planA(h)))
	want := map[string][]string{small: {"mig-0-1-1", large}, large: {"mig-0-1-0", "mig-0-1-1"}, "mig-0-1-1": {small, large}}
	if diff := cmp.Diff(want, h.hardware.beside); diff != "" {
		t.Errorf("beside (-want +got):\n%s", diff)
	}
}

// TestPrepareRealiseFails: nothing is left of a claim whose second partition
// cannot be made, and nothing is taken away from one that was prepared.
func TestPrepareRealiseFails(t *testing.T) {
	h := newHost(t)
	p := h.plugin()
	failure := errors.New("GPU-0: an instance that somebody else made is in the way")
	h.hardware.refuse = func(g gpu.Grant) error {
		if g.Device == large {
			return failure
		}
		return nil
	}
	_, err := p.Prepare(h.context(), planA(h))
	if !errors.Is(err, failure) || !strings.Contains(err.Error(), `claim ns/claim-a: request "r": GPU-0`) {
		t.Errorf("error %v, want %v with the claim and the request", err, failure)
	}
	h.want("after the failure")

	h.hardware.refuse = nil
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), planA(h)))
	h.hardware.refuse = func(gpu.Grant) error { return failure }
	if _, err := p.Prepare(h.context(), planA(h)); !errors.Is(err, failure) {
		t.Errorf("error %v, want %v", err, failure)
	}
	h.want("after the failure to prepare again", "a")
}

// TestPrepareWithoutSpec: partitions that are made already are taken back.
func TestPrepareWithoutSpec(t *testing.T) {
	h := newHost(t)
	p := h.plugin()
	h.driver = errors.New("device node /dev/nvidia0 is missing")
	if _, err := p.Prepare(h.context(), planA(h)); !errors.Is(err, h.driver) {
		t.Errorf("error %v, want %v", err, h.driver)
	}
	h.want("after the failure")
}

// TestPrepareIsCancelled: what was made for a kubelet that has hung up is taken
// back all the same.
func TestPrepareIsCancelled(t *testing.T) {
	h := newHost(t)
	p := h.plugin()
	ctx, cancel := context.WithCancel(h.context())
	h.hardware.refuse = func(g gpu.Grant) error {
		if g.Device == large {
			cancel()
		}
		return ctx.Err()
	}
	if _, err := p.Prepare(ctx, planA(h)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	h.want("after the failure")
}

// TestPrepareOnLostGPU is a device that was there when the plan was made.
func TestPrepareOnLostGPU(t *testing.T) {
	h := newHost(t)
	look := grant("slice-"+lostGPU, 0)
	look.AdminAccess = true
	if _, err := h.plugin().Prepare(h.context(), h.plan("a", look)); err == nil || !strings.Contains(err.Error(), `no device "slice-9" in pool "node"`) {
		t.Errorf("error %v, want one that names the device", err)
	}
	h.want("after the failure")
}

// TestPrepareOtherPartition is a claim that was allocated anew: what it does not
// have any more goes, what it has still stays as it is.
func TestPrepareOtherPartition(t *testing.T) {
	h, p := partitioned(t)
	kept := h.instanceUUID(large)
	other := grant(large, 40*gib)
	other.Request = "another"
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("a", grant("mig-0-2-2", 20*gib), other)))
	h.want("prepared", "a", "b")
	if again := h.instanceUUID(large); again != kept {
		t.Errorf("the partition that was kept is %s, was %s", again, kept)
	}

	// It cannot be taken from those who use it.
	h.hardware.busy = map[string]error{kept: errors.New("process 4711 (python) uses it")}
	_, err := p.Prepare(h.context(), h.plan("a", grant("mig-0-2-2", 20*gib)))
	if err == nil || !strings.Contains(err.Error(), "claim ns/claim-a: taking back what it was granted before") || !strings.Contains(err.Error(), "4711") {
		t.Errorf("error %v, want one that says who uses it", err)
	}
	h.want("after the failure", "a", "b")
}

func TestPrepareAdminAccess(t *testing.T) {
	h, p := partitioned(t)
	look := grant(small, 0)
	look.AdminAccess = true
	devices := must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("look", look)))
	if got := uuidOf(devices[0]); got != h.instanceUUID(small) {
		t.Errorf("the administrator sees %s, on the GPU is %s", got, h.instanceUUID(small))
	}
	if err := p.Unprepare(h.context(), "look"); err != nil {
		t.Error(err)
	}
	h.want("looked at", "a", "b")

	// It does not keep the place from those who are granted it.
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("look", look)))
	if err := p.Unprepare(h.context(), "a"); err != nil {
		t.Error(err)
	}
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("c", grant("mig-0-1-0", 10*gib), grant("mig-0-2-2", 20*gib))))
	h.want("given away", "b", "c", "look")
}

// TestPrepareStatic is an instance that an administrator has made, and keeps.
func TestPrepareStatic(t *testing.T) {
	h := newHost(t)
	p := h.plugin()
	h.administrator(small, true)
	h.hardware.inMIGMode["GPU-0"] = true
	g := grant(small, 10*gib)
	g.Existing = h.instanceUUID(small)
	devices := must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), h.plan("a", g)))
	if got := uuidOf(devices[0]); got != g.Existing {
		t.Errorf("got %s, want %s", got, g.Existing)
	}
	must[Report](t)(p.Reconcile(h.context()))
	h.want("prepared", "a")
	if err := p.Unprepare(h.context(), "a"); err != nil {
		t.Error(err)
	}
	if h.instanceUUID(small) != g.Existing {
		t.Error("the instance is gone")
	}
}

// TestUnprepareInUse: the record stays until the instance is gone, and nothing
// of the claim is restored meanwhile.
func TestUnprepareInUse(t *testing.T) {
	h, p := partitioned(t)
	process := errors.New("process 4711 (python) uses it")
	h.hardware.busy = map[string]error{h.instanceUUID(large): process}
	for range 2 {
		err := p.Unprepare(h.context(), "a")
		if !errors.Is(err, process) || !strings.Contains(err.Error(), "unpreparing claim a") {
			t.Errorf("error %v, want %v", err, process)
		}
		if h.instanceUUID(small) != "" || h.instanceUUID(large) == "" {
			t.Error("not exactly the partition in use is left")
		}
		if report := must[Report](t)(p.Reconcile(h.context())); !cmp.Equal(report, Report{}) {
			t.Errorf("reconciled: %v", report)
		}
		if records, files := h.left(); !slices.Equal(records, []types.UID{"a", "b"}) || !slices.Equal(files, []types.UID{"b"}) {
			t.Errorf("records of %q, CDI specs of %q", records, files)
		}
	}
	if _, err := p.Prepare(h.context(), h.plan("c", grant("mig-0-1-7", 10*gib))); err == nil || !strings.Contains(err.Error(), "claim ns/claim-a (4g.40gb at memory slice 4)") {
		t.Errorf("error %v, want one that names the holder", err)
	}
	// Its pod is gone for good, and then the process is.
	h.setInUse("a", false)
	if _, err := p.Reconcile(h.context()); !errors.Is(err, process) || !strings.Contains(err.Error(), "claim ns/claim-a") {
		t.Errorf("error %v, want %v", err, process)
	}
	h.hardware.busy = nil
	if report := must[Report](t)(p.Reconcile(h.context())); !cmp.Equal(report, Report{Unprepared: ended("a")}) {
		t.Errorf("reconciled: %v", report)
	}
	h.want("at the end", "b")
}

// TestPrepareAfterFailedUnprepare is a claim that another pod uses.
func TestPrepareAfterFailedUnprepare(t *testing.T) {
	h, p := partitioned(t)
	h.hardware.busy = map[string]error{h.instanceUUID(large): errors.New("in use")}
	if err := p.Unprepare(h.context(), "a"); err == nil {
		t.Fatal("no error")
	}
	must[[]kubeletplugin.Device](t)(p.Prepare(h.context(), planA(h)))
	h.want("prepared again", "a", "b")
}

// TestUnprepareWithoutDriver: the instance is left, and goes once the driver can
// be asked.
func TestUnprepareWithoutDriver(t *testing.T) {
	h, p := partitioned(t)
	h.hardware.unavailable = errors.New("the driver is not loaded")
	if err := p.Unprepare(h.context(), "a"); err != nil {
		t.Fatal(err)
	}
	if records, files := h.left(); !slices.Equal(records, []types.UID{"b"}) || !slices.Equal(files, []types.UID{"b"}) {
		t.Errorf("records of %q, CDI specs of %q", records, files)
	}
	// The claim that goes on is reported, and keeps what it has.
	if _, err := p.Reconcile(h.context()); !errors.Is(err, h.hardware.unavailable) || !strings.Contains(err.Error(), "claim ns/claim-b: restoring") {
		t.Errorf("error %v, want %v", err, h.hardware.unavailable)
	}
	h.hardware.unavailable = nil
	must[Report](t)(p.Reconcile(h.context()))
	h.want("with the driver", "b")
}
