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

package isolation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/pkg/container"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/hook"
	"github.com/memslice/memslice/pkg/state"
)

// node is a machine with claims, processes in containers, and a driver.
type node struct {
	*Confiner
	claims     map[types.UID]state.Record
	reserved   map[types.UID][]string // pods
	processes  map[int]container.Container
	ended      map[string]bool              // cgroups
	limits     map[string]map[string]uint64 // by GPU and cgroup
	failLimit  error
	failRead   error
	failClaims error
	lies       uint64       // what the driver takes off what it is told
	before     func() error // is called before the driver does something
}

func newNode(t *testing.T, dir string) *node {
	t.Helper()
	n := &node{
		claims: map[types.UID]state.Record{}, reserved: map[types.UID][]string{},
		processes: map[int]container.Container{}, ended: map[string]bool{}, limits: map[string]map[string]uint64{},
	}
	n.restart(t, dir)
	return n
}

// restart is another Confiner on the same machine.
func (n *node) restart(t *testing.T, dir string) {
	t.Helper()
	c, err := New(Options{
		Dir: dir, Containers: n, Limits: n,
		Record: func(_ context.Context, uid types.UID) (state.Record, bool, error) {
			r, ok := n.claims[uid]
			return r, ok, n.failClaims
		},
		Reserved: func(_ context.Context, r state.Record, pod string) (bool, error) {
			return slices.Contains(n.reserved[r.UID], pod), n.failClaims
		},
		Now: func() time.Time { return time.Unix(1e9, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Confiner = c
}

func (n *node) Find(pid int) (container.Container, error) {
	c, ok := n.processes[pid]
	if !ok {
		return c, fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	return c, nil
}

func (n *node) Exists(cgroup string) bool { return !n.ended[cgroup] }

func (n *node) SetMemoryLimit(_ context.Context, uuid, cgroup string, bytes uint64) error {
	if n.before != nil {
		if err := n.before(); err != nil {
			return err
		}
	}
	if n.failLimit != nil {
		return n.failLimit
	}
	if n.limits[uuid] == nil {
		n.limits[uuid] = map[string]uint64{}
	}
	n.limits[uuid][cgroup] = bytes - n.lies
	return nil
}

func (n *node) MemoryLimit(_ context.Context, uuid, cgroup string) (uint64, bool, error) {
	if n.before != nil {
		if err := n.before(); err != nil {
			return 0, false, err
		}
	}
	bytes, ok := n.limits[uuid][cgroup]
	return bytes, ok, n.failRead
}

// process starts one in a container of a pod.
func (n *node) process(pid int, pod, id string) container.Container {
	c := container.Container{Pod: pod, ID: id, Cgroup: "/cgroup/" + pod + "/" + id, PodCgroup: "/cgroup/" + pod}
	n.processes[pid] = c
	return c
}

// claim prepares a claim for pods.
func (n *node) claim(uid types.UID, pods []string, grants ...gpu.Grant) {
	n.claims[uid] = state.Record{UID: uid, Namespace: "ns", Name: "claim-" + string(uid), Phase: state.Prepared, Grants: grants}
	n.reserved[uid] = pods
}

func share(uuid string, bytes int64) gpu.Grant {
	return gpu.Grant{Request: "gpu", UUID: uuid, Form: gpu.Slice, Memory: bytes, Isolation: gpu.IsolationCgroup}
}

func (n *node) confine(t *testing.T, claim string, device, pid int) {
	t.Helper()
	if err := n.Confine(t.Context(), hook.Request{Claim: claim, Device: device, PID: pid}); err != nil {
		t.Fatal(err)
	}
}

func TestConfine(t *testing.T) {
	const gi = 1 << 30
	unenforced := share("GPU-0", 9*gi)
	unenforced.Isolation = gpu.IsolationNone
	type limits = map[string]map[string]uint64
	for name, tc := range map[string]struct {
		claims map[types.UID][]gpu.Grant
		given  [][2]any // container, "claim/device"
		want   limits
	}{
		"one share": {
			claims: map[types.UID][]gpu.Grant{"a": {share("GPU-0", 4*gi+1)}},
			given:  [][2]any{{"c1", Share{"a", 0}}},
			want:   limits{"GPU-0": {"/cgroup/pod/c1": 4*gi + 1, "/cgroup/pod": 4*gi + 1}},
		},
		"one share for two containers": {
			claims: map[types.UID][]gpu.Grant{"a": {share("GPU-0", 4*gi)}},
			given:  [][2]any{{"c1", Share{"a", 0}}, {"c2", Share{"a", 0}}},
			want:   limits{"GPU-0": {"/cgroup/pod/c1": 4 * gi, "/cgroup/pod/c2": 4 * gi, "/cgroup/pod": 4 * gi}},
		},
		"two shares of one GPU, in one container, both, and each": {
			claims: map[types.UID][]gpu.Grant{"a": {share("GPU-0", 4*gi), share("GPU-0", 2*gi)}},
			given:  [][2]any{{"c1", Share{"a", 0}}, {"c1", Share{"a", 1}}, {"c2", Share{"a", 0}}, {"c3", Share{"a", 1}}},
			want:   limits{"GPU-0": {"/cgroup/pod/c1": 6 * gi, "/cgroup/pod/c2": 4 * gi, "/cgroup/pod/c3": 2 * gi, "/cgroup/pod": 6 * gi}},
		},
		"two claims": {
			claims: map[types.UID][]gpu.Grant{"a": {share("GPU-0", 4*gi)}, "b": {share("GPU-0", 1*gi)}},
			given:  [][2]any{{"c1", Share{"a", 0}}, {"c2", Share{"b", 0}}},
			want:   limits{"GPU-0": {"/cgroup/pod/c1": 4 * gi, "/cgroup/pod/c2": 1 * gi, "/cgroup/pod": 5 * gi}},
		},
		"two GPUs": {
			claims: map[types.UID][]gpu.Grant{"a": {share("GPU-0", 4*gi), share("GPU-1", 3*gi)}},
			given:  [][2]any{{"c1", Share{"a", 0}}, {"c1", Share{"a", 1}}},
			want: limits{
				"GPU-0": {"/cgroup/pod/c1": 4 * gi, "/cgroup/pod": 4 * gi},
				"GPU-1": {"/cgroup/pod/c1": 3 * gi, "/cgroup/pod": 3 * gi},
			},
		},
		"the hook is run twice": {
			claims: map[types.UID][]gpu.Grant{"a": {share("GPU-0", 4*gi)}},
			given:  [][2]any{{"c1", Share{"a", 0}}, {"c1", Share{"a", 0}}},
			want:   limits{"GPU-0": {"/cgroup/pod/c1": 4 * gi, "/cgroup/pod": 4 * gi}},
		},
		"one that nothing is to hold": {
			claims: map[types.UID][]gpu.Grant{"a": {unenforced}},
			given:  [][2]any{{"c1", Share{"a", 0}}},
			want:   limits{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			n := newNode(t, dir)
			for uid, grants := range tc.claims {
				n.claim(uid, []string{"pod"}, grants...)
			}
			for i, g := range tc.given {
				s := g[1].(Share)
				n.process(i, "pod", g[0].(string))
				n.confine(t, string(s.Claim), s.Device, i)
				n.restart(t, dir) // all that is known is on the disk
			}
			if diff := cmp.Diff(tc.want, n.limits); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConfineRefuses(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		request hook.Request
		change  func(*node)
		want    string
	}{
		"an impossible claim":          {request: hook.Request{Claim: "../a", PID: 1}, want: "claim UID"},
		"a claim that is not prepared": {request: hook.Request{Claim: "b", PID: 1}, want: "not prepared on this node"},
		"a claim that is being prepared": {request: hook.Request{Claim: "a", PID: 1}, want: "not prepared on this node", change: func(n *node) {
			r := n.claims["a"]
			r.Phase = state.Preparing
			n.claims["a"] = r
		}},
		"a device that it has not":   {request: hook.Request{Claim: "a", Device: 1, PID: 1}, want: "none with index 1"},
		"a negative device":          {request: hook.Request{Claim: "a", Device: -1, PID: 1}, want: "none with index -1"},
		"a process that has ended":   {request: hook.Request{Claim: "a", PID: 2}, want: "process 2"},
		"another pod's process":      {request: hook.Request{Claim: "a", PID: 3}, want: "not reserved for pod other"},
		"the API server is away":     {request: hook.Request{Claim: "a", PID: 1}, want: "broken", change: func(n *node) { n.failClaims = broken }},
		"the driver refuses":         {request: hook.Request{Claim: "a", PID: 1}, want: "broken", change: func(n *node) { n.failLimit = broken }},
		"it cannot be read back":     {request: hook.Request{Claim: "a", PID: 1}, want: "broken", change: func(n *node) { n.failRead = broken }},
		"another limit is read back": {request: hook.Request{Claim: "a", PID: 1}, want: "the driver says 1023", change: func(n *node) { n.lies = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, t.TempDir())
			n.claim("a", []string{"pod"}, share("GPU-0", 1024))
			n.process(1, "pod", "c1")
			n.process(3, "other", "c3")
			if tc.change != nil {
				tc.change(n)
			}
			err := n.Confine(t.Context(), tc.request)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A container that restarts while the API server is away is limited all the same.
func TestConfineKnownPod(t *testing.T) {
	n := newNode(t, t.TempDir())
	n.claim("a", []string{"pod"}, share("GPU-0", 1024))
	n.process(1, "pod", "c1")
	n.confine(t, "a", 0, 1)
	n.reserved["a"] = nil
	n.process(2, "pod", "c2")
	n.confine(t, "a", 0, 2)
	n.process(3, "other", "c3")
	if err := n.Confine(t.Context(), hook.Request{Claim: "a", PID: 3}); err == nil {
		t.Error("another pod was let in")
	}
}

func TestCheck(t *testing.T) {
	const pod, own = "/cgroup/pod", "/cgroup/pod/c1"
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		change   func(*node)
		repaired bool
		err      string
		none     bool
		want     map[string]uint64
	}{
		"all is well":                     {change: func(*node) {}, want: map[string]uint64{own: 1024, pod: 1024}},
		"the limit is gone":               {change: func(n *node) { delete(n.limits["GPU-0"], own) }, repaired: true, want: map[string]uint64{own: 1024, pod: 1024}},
		"it is a higher one":              {change: func(n *node) { n.limits["GPU-0"][own] = 4096 }, repaired: true, want: map[string]uint64{own: 1024, pod: 1024}},
		"it is a lower one":               {change: func(n *node) { n.limits["GPU-0"][own] = 1 }, repaired: true, want: map[string]uint64{own: 1024, pod: 1024}},
		"the pod's is gone":               {change: func(n *node) { delete(n.limits["GPU-0"], pod) }, repaired: true, want: map[string]uint64{own: 1024, pod: 1024}},
		"it cannot be read":               {change: func(n *node) { n.failRead = broken }, err: "broken", want: map[string]uint64{own: 1024, pod: 1024}},
		"it cannot be set":                {change: func(n *node) { delete(n.limits["GPU-0"], own); n.failLimit = broken }, err: "broken", want: map[string]uint64{pod: 1024}},
		"the container has ended":         {change: func(n *node) { n.ended[own] = true }, none: true, want: map[string]uint64{own: 1024, pod: 1024}},
		"the claim is no longer prepared": {change: func(n *node) { delete(n.claims, "a") }, none: true, want: map[string]uint64{own: 1024, pod: 1024}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, t.TempDir())
			n.claim("a", []string{"pod"}, share("GPU-0", 1024))
			c := n.process(1, "pod", "c1")
			n.confine(t, "a", 0, 1)
			tc.change(n)
			limits, err := n.Check(t.Context(), "GPU-0")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, n.limits["GPU-0"]); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			if tc.none {
				if len(limits) > 0 {
					t.Errorf("got %+v, want nothing", limits)
				}
				return
			}
			if len(limits) != 1 || limits[0].Container != c || limits[0].Repaired != tc.repaired || fmt.Sprint(limits[0].Err) == "<nil>" != (tc.err == "") {
				t.Fatalf("got %+v", limits)
			}
			if tc.err == "" && limits[0].Bytes != 1024 {
				t.Errorf("read back %d", limits[0].Bytes)
			}
			if other, err := n.Check(t.Context(), "GPU-1"); err != nil || len(other) > 0 {
				t.Errorf("on another GPU: %+v, %v", other, err)
			}
		})
	}
}

// Cut short anywhere, a container is not started, and the next one of its pod is
// limited as if nothing had been.
func TestConfineCutShort(t *testing.T) {
	stop := errors.New("stop")
	for steps := range 4 {
		dir := t.TempDir()
		n := newNode(t, dir)
		n.claim("a", []string{"pod"}, share("GPU-0", 1024))
		first := n.process(1, "pod", "c1")
		left := steps
		step := func() error {
			if left--; left < 0 {
				return stop
			}
			return nil
		}
		n.before = step
		if err := n.Confine(t.Context(), hook.Request{Claim: "a", PID: 1}); !errors.Is(err, stop) {
			t.Fatalf("after %d steps: %v", steps, err)
		}
		n.before = nil
		n.restart(t, dir)
		n.ended[first.Cgroup] = true // as the runtime gives the container up
		second := n.process(2, "pod", "c2")
		n.confine(t, "a", 0, 2)
		for _, cgroup := range []string{second.Cgroup, second.PodCgroup} {
			if got := n.limits["GPU-0"][cgroup]; got != 1024 {
				t.Errorf("after %d steps and another try: %s is limited to %d", steps, cgroup, got)
			}
		}
		if limits, err := n.Check(t.Context(), "GPU-0"); err != nil || len(limits) != 1 || limits[0].Container != second {
			t.Errorf("after %d steps and another try: %+v, %v", steps, limits, err)
		}
	}
}

// Containers that have ended are forgotten, and damaged files are not in the way.
func TestRecords(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	n.claim("a", []string{"pod"}, share("GPU-0", 1024))
	n.process(1, "pod", "c1")
	gone := n.process(2, "pod", "c2")
	n.confine(t, "a", 0, 1)
	n.confine(t, "a", 0, 2)
	for name, content := range map[string]string{
		"cut.json": `{"version": 1, "id": "cu`, "empty.json": "", "foreign.json": `{"version":1,"id":"other","pod":"p","cgroup":"c","podCgroup":"d","shares":[{"claim":"a"}]}`,
		"later.json": `{"version":2}`, "wild.json": `{"version":1,"id":"wild","pod":"p","cgroup":"c","podCgroup":"d","shares":[{"claim":"../x"}]}`, tempPrefix + "c3": "half",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.ended[gone.Cgroup] = true
	holding, err := n.Holding(t.Context())
	if want := map[string][]Share{"c1": {{Claim: "a"}}}; err != nil || !maps.EqualFunc(holding, want, slices.Equal) {
		t.Errorf("got %v, %v, want %v", holding, err, want)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(left) != 1 {
		t.Errorf("left are %q, %v", left, err)
	}
}

// The limits are the sums of the grants to the byte, whatever the order in which
// containers are given them.
func TestAmountsAreExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := newNode(t, t.TempDir())
		var all []Share
		for c := range 1 + random.IntN(4) {
			uid := types.UID(fmt.Sprintf("claim%d", c))
			var grants []gpu.Grant
			for d := range 1 + random.IntN(4) {
				grants = append(grants, share(fmt.Sprintf("GPU-%d", random.IntN(3)), 1+random.Int64N(1<<40)))
				all = append(all, Share{uid, d})
			}
			n.claim(uid, []string{"pod"}, grants...)
		}
		want := map[string]map[string]uint64{}
		counted := map[string]map[Share]bool{}
		for pid := range 1 + random.IntN(12) {
			c := n.process(pid, "pod", fmt.Sprintf("c%d", random.IntN(3)))
			s := all[random.IntN(len(all))]
			n.confine(t, string(s.Claim), s.Device, pid)
			grant := n.claims[s.Claim].Grants[s.Device]
			for _, cgroup := range []string{c.Cgroup, c.PodCgroup} {
				if counted[cgroup] == nil {
					counted[cgroup] = map[Share]bool{}
				}
				if want[grant.UUID] == nil {
					want[grant.UUID] = map[string]uint64{}
				}
				if !counted[cgroup][s] {
					counted[cgroup][s] = true
					want[grant.UUID][cgroup] += uint64(grant.Memory)
				}
			}
		}
		if diff := cmp.Diff(want, n.limits); diff != "" {
			t.Fatalf("limits (-want +got):\n%s", diff)
		}
	}
}

func FuzzDecode(f *testing.F) {
	data, err := encode(Held{Container: container.Container{ID: "c", Pod: "p", Cgroup: "/c", PodCgroup: "/p"}, Shares: []Share{{"a", 1}}, Since: time.Unix(1e9, 0)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		held, err := decode(data)
		if err != nil {
			return
		}
		again, err := encode(held)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decode(again); err != nil || !cmp.Equal(held, back) {
			t.Errorf("%+v became %+v, %v", held, back, err)
		}
	})
}
