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

package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/memslice/memslice/pkg/audit"
	"github.com/memslice/memslice/pkg/container"
	"github.com/memslice/memslice/pkg/golden"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/isolation"
)

const gi = 1 << 30

// desk is a Reporter, and what it says to whom.
type desk struct {
	*Reporter
	client *fake.Clientset
	events *record.FakeRecorder
	onNode []string
	evicts bool
	clock  time.Time
	fail   error // of writes of claims
	writes int
}

func newDesk() *desk {
	d := &desk{client: fake.NewClientset(&resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "uid"},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{},
			Devices:    []resourceapi.AllocatedDeviceStatus{{Driver: "nic.example.com", Pool: "p", Device: "d"}, {Driver: gpu.DriverName, Pool: "former", Device: "d"}},
		},
	}), events: record.NewFakeRecorder(100), clock: time.Unix(1e9, 0)}
	d.client.PrependReactor("update", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		d.writes++
		return d.fail != nil, nil, d.fail
	})
	d.Reporter = New(Options{
		Client: d.client, Events: d.events, OnNode: func(p string) { d.onNode = append(d.onNode, p) },
		Evicts: func(gpu.Grant) bool { return d.evicts }, PeakInterval: time.Minute, Now: func() time.Time { return d.clock },
	})
	return d
}

// told are the events since the last call.
func (d *desk) told() (events []string) {
	for {
		select {
		case e := <-d.events.Events:
			events = append(events, e)
		default:
			return events
		}
	}
}

func (d *desk) see(t *testing.T, devices ...audit.Device) {
	t.Helper()
	d.tell(t.Context(), audit.Snapshot{Claims: []audit.Claim{claimOf(devices...)}})
}

func claimOf(devices ...audit.Device) audit.Claim {
	return audit.Claim{UID: "uid", Namespace: "ns", Name: "claim", Since: time.Unix(9e8, 0), Pods: []audit.Pod{{UID: "pod-uid", Name: "pod"}}, Devices: devices}
}

func share(isolation gpu.Isolation, used uint64) audit.Device {
	return audit.Device{
		Grant: gpu.Grant{Request: "gpu", Pool: "node", Device: "gpu-0-slice", ShareID: "5d1c8c6e-1111-4222-8333-444455556666", Form: gpu.Slice, UUID: "GPU-0", Memory: 4 * gi, Compute: 25, Isolation: isolation},
		Used:  used, Peak: used, Known: true,
	}
}

func limited(d audit.Device, change ...func(*isolation.Limit)) audit.Device {
	l := isolation.Limit{Held: isolation.Held{Container: container.Container{Pod: "pod-uid", ID: "c1"}, Since: time.Unix(9e8, 0)}, GPU: "GPU-0", Bytes: 4 * gi}
	for _, c := range change {
		c(&l)
	}
	d.Limits = append(d.Limits, l)
	return d
}

func TestConditions(t *testing.T) {
	mig := audit.Device{Grant: gpu.Grant{Form: gpu.MIG, Memory: 10 * gi, Isolation: gpu.IsolationMIG}}
	whole := audit.Device{Grant: gpu.Grant{Form: gpu.Whole, Memory: 80 * gi, Isolation: gpu.IsolationNone}}
	look := audit.Device{Grant: gpu.Grant{Form: gpu.Slice, AdminAccess: true}, Used: 5, Known: true}
	mig.Known, whole.Known = true, true
	silent := limited(share(gpu.IsolationCgroup, 0))
	silent.Known, silent.Limits = false, nil
	failed := func(l *isolation.Limit) { l.Err = errors.New("the driver is away") }
	for name, tc := range map[string]struct {
		device audit.Device
		want   []string
	}{
		"limited":             {limited(share(gpu.IsolationCgroup, gi)), []string{"Ready=True/Enforced", "WithinGrant=True/WithinGrant"}},
		"not started":         {share(gpu.IsolationCgroup, 0), []string{"Ready=False/NotStarted", "WithinGrant=True/WithinGrant"}},
		"one limit unknown":   {limited(limited(share(gpu.IsolationCgroup, gi)), failed), []string{"Ready=False/LimitFailed", "WithinGrant=True/WithinGrant"}},
		"nothing holds it":    {share(gpu.IsolationNone, gi), []string{"Ready=True/NotEnforced", "WithinGrant=True/WithinGrant"}},
		"of a former release": {share("", gi), []string{"Ready=True/NotEnforced", "WithinGrant=True/WithinGrant"}},
		"too much":            {share(gpu.IsolationNone, 4*gi+1), []string{"Ready=True/NotEnforced", "WithinGrant=False/OverUse"}},
		"a partition":         {mig, []string{"Ready=True/Hardware", "WithinGrant=True/WithinGrant"}},
		"a whole GPU":         {whole, []string{"Ready=True/NotEnforced", "WithinGrant=True/WithinGrant"}},
		"a silent GPU":        {silent, []string{"Ready=Unknown/Unknown", "WithinGrant=Unknown/Unknown"}},
		"a look":              {look, []string{"Ready=True/NotEnforced", "WithinGrant=True/WithinGrant"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range conditions(tc.device) {
				got = append(got, fmt.Sprintf("%s=%s/%s", c.kind, c.status, c.reason))
				if c.text == "" || strings.Contains(c.text, "%!") {
					t.Errorf("%s says %q", c.kind, c.text)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// What is written, byte by byte.
func TestEntries(t *testing.T) {
	d := newDesk()
	entries, err := d.entries(claimOf(limited(share(gpu.IsolationCgroup, 3*gi)), audit.Device{
		Grant: gpu.Grant{Request: "b", Pool: "node/gpu-1", Device: "gpu-1-mig", Form: gpu.MIG, UUID: "GPU-1", Memory: 10 * gi, Isolation: gpu.IsolationMIG}, Known: true,
	}))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(entries, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", "status.json"), append(text, '\n'))
}

// The API takes no more than 10 KiB of data.
func TestDataFits(t *testing.T) {
	d := share(gpu.IsolationCgroup, gi)
	for i := range 200 {
		d = limited(d, func(l *isolation.Limit) {
			l.Container.ID, l.Since = strings.Repeat("0123456789abcdef", 4), time.Unix(1e9+int64(i), 0)
		})
	}
	encoded, err := data(claimOf(d), d)
	if err != nil || len(encoded) > 10<<10 || len(encoded) < 5<<10 {
		t.Errorf("%d bytes, %v", len(encoded), err)
	}
	if latest := time.Unix(1e9+199, 0).UTC().Format(time.RFC3339); !strings.Contains(string(encoded), latest) {
		t.Errorf("the latest limit, of %s, was left out", latest)
	}
}

func TestStatusIsWrittenWhenSomethingIsNew(t *testing.T) {
	d := newDesk()
	for _, step := range []struct {
		what   string
		device audit.Device
		later  time.Duration
		fail   error
		writes bool
	}{
		{what: "prepared", device: share(gpu.IsolationCgroup, 0), writes: true},
		{what: "nothing new", device: share(gpu.IsolationCgroup, 0)},
		{what: "a container started, and the API server is away", device: limited(share(gpu.IsolationCgroup, 0)), fail: errors.New("away"), writes: true},
		{what: "it is back", device: limited(share(gpu.IsolationCgroup, 0)), writes: true},
		{what: "a higher peak", device: limited(share(gpu.IsolationCgroup, gi))},
		{what: "which is still higher after a while", device: limited(share(gpu.IsolationCgroup, 2*gi)), later: time.Minute, writes: true},
		{what: "too much", device: limited(share(gpu.IsolationCgroup, 5*gi)), writes: true},
		{what: "the limit is unknown", device: limited(share(gpu.IsolationCgroup, 5*gi), func(l *isolation.Limit) { l.Err = errors.New("lost") }), writes: true},
		{what: "the claim is gone", device: share(gpu.IsolationCgroup, 0), fail: apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), "claim"), writes: true},
	} {
		d.clock, d.fail = d.clock.Add(step.later), step.fail
		before := d.writes
		d.see(t, step.device)
		if wrote := d.writes > before; wrote != step.writes {
			t.Errorf("%s: written: %t, want %t", step.what, wrote, step.writes)
		}
	}
}

// The entries of other drivers stay, and another claim of that name is let alone.
func TestOnlyOurs(t *testing.T) {
	d := newDesk()
	d.see(t, share(gpu.IsolationNone, 0))
	drivers := func() (all []string) {
		t.Helper()
		c, err := d.client.ResourceV1().ResourceClaims("ns").Get(t.Context(), "claim", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.Status.Devices {
			all = append(all, s.Driver+"/"+s.Pool)
		}
		return all
	}
	if got, want := drivers(), []string{"nic.example.com/p", gpu.DriverName + "/node"}; !slices.Equal(got, want) {
		t.Errorf("the status is of %q, want %q", got, want)
	}
	other := claimOf(share(gpu.IsolationNone, 0))
	other.UID = "former"
	before := d.writes
	d.tell(t.Context(), audit.Snapshot{Claims: []audit.Claim{other}})
	if d.writes != before {
		t.Error("another claim of that name was written")
	}
}

// A condition keeps the time at which it got its status.
func TestTransitions(t *testing.T) {
	d := newDesk()
	at := func(device audit.Device, kind string) time.Time {
		t.Helper()
		entries, err := d.entries(claimOf(device))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range entries[0].Conditions {
			if c.Type == kind {
				return c.LastTransitionTime.Time
			}
		}
		t.Fatalf("no condition %s", kind)
		return time.Time{}
	}
	first := at(share(gpu.IsolationNone, 0), ConditionWithinGrant)
	d.clock = d.clock.Add(time.Hour)
	if again := at(share(gpu.IsolationNone, gi), ConditionWithinGrant); !again.Equal(first) {
		t.Errorf("it is the same since %v, told is %v", first, again)
	}
	if changed := at(share(gpu.IsolationNone, 5*gi), ConditionWithinGrant); !changed.Equal(d.clock) {
		t.Errorf("it changed at %v, told is %v", d.clock, changed)
	}
}

func TestOverUseIsToldOnce(t *testing.T) {
	d := newDesk()
	expect := func(what string, words ...string) {
		t.Helper()
		events := d.told()
		if len(words) == 0 && len(events) > 0 {
			t.Errorf("%s: told is %q", what, events)
		}
		for _, w := range words {
			if len(events) != 1 || !strings.Contains(events[0], w) {
				t.Errorf("%s: told is %q, want %q", what, events, w)
			}
		}
	}
	d.see(t, share(gpu.IsolationNone, 4*gi))
	expect("as much as was granted")
	d.see(t, share(gpu.IsolationNone, 5*gi))
	expect("too much", "Warning "+ReasonPodOverUse, "ns/claim", "5Gi", "4Gi", "GPU-0")
	d.see(t, share(gpu.IsolationNone, 6*gi))
	expect("still")
	silent := share(gpu.IsolationNone, 0)
	silent.Known = false
	d.see(t, silent)
	expect("the GPU cannot be asked")
	d.see(t, share(gpu.IsolationNone, 6*gi))
	expect("still, after that")
	d.see(t, share(gpu.IsolationNone, gi))
	expect("no longer", "Normal "+ReasonPodWithinGrant)
	d.see(t, share(gpu.IsolationNone, 5*gi))
	expect("again", ReasonPodOverUse)
	d.see(t, limited(share(gpu.IsolationCgroup, gi), func(l *isolation.Limit) { l.Repaired = true }))
	if events := d.told(); len(events) != 2 || !strings.Contains(events[1], ReasonPodLimitRestored) {
		t.Errorf("a limit was restored: told is %q", events)
	}
}

func TestForeignIsToldOnce(t *testing.T) {
	d := newDesk()
	see := func(foreign ...audit.Foreign) {
		d.tell(t.Context(), audit.Snapshot{GPUs: []audit.GPU{{UUID: "GPU-0", Foreign: foreign}}})
	}
	stranger := audit.Foreign{PID: 4711, Command: "python", Memory: 3 * gi}
	see(stranger)
	stranger.Memory = 4 * gi
	see(stranger)
	if len(d.onNode) != 1 || !strings.Contains(d.onNode[0], "process 4711 (python) has 3Gi") || !strings.Contains(d.onNode[0], "GPU-0") {
		t.Errorf("told is %q", d.onNode)
	}
	see()
	see(stranger)
	if len(d.onNode) != 2 {
		t.Errorf("one that came again is not told of: %q", d.onNode)
	}
}

func TestEviction(t *testing.T) {
	tooMany := apierrors.NewTooManyRequests("disruption budget", 1)
	for name, tc := range map[string]struct {
		evicts bool
		used   uint64
		fail   error
		asked  int
		told   bool
	}{
		"where it is configured":       {evicts: true, used: 5 * gi, asked: 1, told: true},
		"where it is not":              {used: 5 * gi},
		"not for what was granted":     {evicts: true, used: 4 * gi},
		"a disruption budget says no":  {evicts: true, used: 5 * gi, fail: tooMany, asked: 1},
		"the pod is another by now":    {evicts: true, used: 5 * gi, fail: apierrors.NewConflict(resourceapi.Resource("pods"), "pod", errors.New("uid")), asked: 1},
		"the pod has ended in between": {evicts: true, used: 5 * gi, fail: apierrors.NewNotFound(resourceapi.Resource("pods"), "pod"), asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk()
			d.evicts = tc.evicts
			var asked []*policyv1.Eviction
			d.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				asked = append(asked, action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction))
				return true, nil, tc.fail
			})
			d.see(t, share(gpu.IsolationNone, tc.used))
			if len(asked) != tc.asked {
				t.Fatalf("asked %d times, want %d", len(asked), tc.asked)
			}
			for _, e := range asked {
				if e.Name != "pod" || e.Namespace != "ns" || *e.DeleteOptions.Preconditions.UID != "pod-uid" {
					t.Errorf("asked for %+v", e)
				}
			}
			if told := strings.Contains(strings.Join(d.told(), ""), ReasonPodEvicted); told != tc.told {
				t.Errorf("told of an eviction: %t, want %t", told, tc.told)
			}
		})
	}
}

// Nobody waits for the API server, and the latest snapshot is not lost.
func TestAuditedDoesNotWait(t *testing.T) {
	d := newDesk()
	for range 3 {
		d.Audited(t.Context(), audit.Snapshot{})
	}
	last := audit.Snapshot{Claims: []audit.Claim{claimOf(share(gpu.IsolationNone, 5*gi))}}
	d.Audited(t.Context(), last)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { d.Run(ctx); close(ended) }()
	if e := <-d.events.Events; !strings.Contains(e, ReasonPodOverUse) {
		t.Errorf("told is %q", e)
	}
	cancel()
	<-ended
}

// What is known of claims goes with them.
func TestForget(t *testing.T) {
	d := newDesk()
	d.see(t, share(gpu.IsolationNone, 5*gi))
	d.tell(t.Context(), audit.Snapshot{})
	if len(d.Reporter.told) > 0 || len(d.since) > 0 || len(d.edges) > 0 {
		t.Errorf("left are %v, %v, %v", d.Reporter.told, d.since, d.edges)
	}
}
