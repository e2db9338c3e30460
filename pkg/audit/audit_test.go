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

package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/pkg/container"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/isolation"
	"github.com/memslice/memslice/pkg/state"
)

// node has processes, in containers of pods, and claims.
type node struct {
	*Auditor
	processes map[string][]gpu.Process // by GPU
	places    map[int]container.Container
	ended     map[int]bool
	records   []state.Record
	pods      map[types.UID][]Pod
	given     map[string][]isolation.Share
	limits    []isolation.Limit
	broken    map[string]error // GPUs that cannot be asked
	asked     int              // how often the API server was
	silent    error            // the API server
	clock     time.Time
}

func newNode() *node {
	n := &node{
		processes: map[string][]gpu.Process{}, places: map[int]container.Container{}, ended: map[int]bool{},
		pods: map[types.UID][]Pod{}, given: map[string][]isolation.Share{}, broken: map[string]error{}, clock: time.Unix(1e9, 0),
	}
	n.Auditor = New(Options{
		Hardware: n, Machine: n, Limits: n,
		Records: func(context.Context) ([]state.Record, error) { return n.records, nil },
		Pods: func(_ context.Context, r state.Record) ([]Pod, error) {
			n.asked++
			return n.pods[r.UID], n.silent
		},
		Now: func() time.Time { return n.clock },
	})
	return n
}

func (n *node) Processes(_ context.Context, uuid string) ([]gpu.Process, error) {
	return n.processes[uuid], n.broken[uuid]
}

func (n *node) Find(pid int) (container.Container, error) {
	if n.ended[pid] {
		return container.Container{}, fs.ErrNotExist
	}
	c, ok := n.places[pid]
	if !ok {
		return c, container.ErrNotContainer
	}
	return c, nil
}

func (n *node) Command(pid int) (string, error) { return fmt.Sprintf("program%d", pid), nil }

func (n *node) Check(_ context.Context, uuid string) (limits []isolation.Limit, err error) {
	for _, l := range n.limits {
		if l.GPU == uuid {
			limits = append(limits, l)
		}
	}
	return limits, nil
}

func (n *node) Holding(context.Context) (map[string][]isolation.Share, error) { return n.given, nil }

// claim prepares a claim for pods.
func (n *node) claim(uid types.UID, pods []string, grants ...gpu.Grant) {
	n.records = append(n.records, state.Record{UID: uid, Namespace: "ns", Name: string(uid), Phase: state.Prepared, Grants: grants})
	n.reserve(uid, pods...)
}

func (n *node) reserve(uid types.UID, pods ...string) {
	n.pods[uid] = nil
	for _, p := range pods {
		n.pods[uid] = append(n.pods[uid], Pod{UID: p, Name: "pod-" + p})
	}
}

// process has memory of a GPU, in a container of a pod or outside of any.
func (n *node) process(uuid string, pid int, bytes uint64, pod, id string) {
	n.processes[uuid] = append(n.processes[uuid], gpu.Process{PID: pid, Memory: bytes, MemoryKnown: true, GPUInstance: gpu.NoGPUInstance})
	if pod != "" {
		n.places[pid] = container.Container{Pod: pod, ID: id}
	}
}

func (n *node) audit(t *testing.T) Snapshot {
	t.Helper()
	s, err := n.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// used is what the devices of claims have: "a/0" is the first of claim a.
func used(s Snapshot) map[string]uint64 {
	all := map[string]uint64{}
	for _, c := range s.Claims {
		for i, d := range c.Devices {
			all[fmt.Sprintf("%s/%d", c.UID, i)] = d.Used
		}
	}
	return all
}

func strangers(s Snapshot) (pids []int) {
	for _, g := range s.GPUs {
		for _, f := range g.Foreign {
			pids = append(pids, f.PID)
		}
	}
	return pids
}

func slice(uuid string, bytes int64) gpu.Grant {
	return gpu.Grant{Request: "gpu", Form: gpu.Slice, UUID: uuid, Memory: bytes, Isolation: gpu.IsolationCgroup}
}

func TestAudit(t *testing.T) {
	look := slice("GPU-0", 0)
	look.AdminAccess = true
	for name, tc := range map[string]struct {
		set     func(*node)
		used    map[string]uint64
		foreign []int
		over    []string
	}{
		"the processes of a pod are summed": {
			set: func(n *node) {
				n.claim("a", []string{"p"}, slice("GPU-0", 100))
				n.process("GPU-0", 1, 40, "p", "c1")
				n.process("GPU-0", 2, 50, "p", "c2")
			},
			used: map[string]uint64{"a/0": 90},
		},
		"of two pods with one claim, too": {
			set: func(n *node) {
				n.claim("a", []string{"p", "q"}, slice("GPU-0", 100))
				n.process("GPU-0", 1, 60, "p", "c1")
				n.process("GPU-0", 2, 60, "q", "c2")
			},
			used: map[string]uint64{"a/0": 120}, over: []string{"a/0"},
		},
		"just what was granted is not too much": {
			set: func(n *node) {
				n.claim("a", []string{"p"}, slice("GPU-0", 100))
				n.process("GPU-0", 1, 100, "p", "c1")
			},
			used: map[string]uint64{"a/0": 100},
		},
		"a container's are its own share's": {
			set: func(n *node) {
				n.claim("a", []string{"p"}, slice("GPU-0", 100), slice("GPU-0", 100))
				n.given["c1"], n.given["c2"] = []isolation.Share{{Claim: "a", Device: 1}}, []isolation.Share{{Claim: "a", Device: 0}}
				n.process("GPU-0", 1, 10, "p", "c1")
				n.process("GPU-0", 2, 20, "p", "c2")
			},
			used: map[string]uint64{"a/0": 20, "a/1": 10},
		},
		"where it is not known which share, the first is filled first": {
			set: func(n *node) {
				n.claim("a", []string{"p"}, slice("GPU-0", 100))
				n.claim("b", []string{"p"}, slice("GPU-0", 50))
				n.process("GPU-0", 1, 160, "p", "c1")
			},
			used: map[string]uint64{"a/0": 100, "b/0": 60}, over: []string{"b/0"},
		},
		"one GPU at a time": {
			set: func(n *node) {
				n.claim("a", []string{"p"}, slice("GPU-0", 100), slice("GPU-1", 100))
				n.process("GPU-0", 1, 10, "p", "c1")
				n.process("GPU-1", 1, 20, "p", "c1")
			},
			used: map[string]uint64{"a/0": 10, "a/1": 20},
		},
		"one that has ended counts no more": {
			set: func(n *node) {
				n.claim("a", []string{"p"}, slice("GPU-0", 100))
				n.process("GPU-0", 1, 10, "p", "c1")
				n.ended[1] = true
			},
			used: map[string]uint64{"a/0": 0},
		},
		"one outside of pods is foreign, and one of a pod without a claim": {
			set: func(n *node) {
				n.claim("a", []string{"p"}, slice("GPU-0", 100))
				n.process("GPU-0", 1, 10, "", "")
				n.process("GPU-0", 2, 10, "q", "c2")
			},
			used: map[string]uint64{"a/0": 0}, foreign: []int{1, 2},
		},
		"on a GPU of which nobody has anything none is": {
			set: func(n *node) {
				n.claim("a", []string{"p"}, slice("GPU-0", 100))
				n.process("GPU-1", 1, 10, "", "")
			},
			used: map[string]uint64{"a/0": 0},
		},
		"who may look is not foreign, and takes nothing of a claim": {
			set: func(n *node) {
				n.claim("a", []string{"p"}, slice("GPU-0", 100))
				n.claim("look", []string{"q"}, look)
				n.process("GPU-0", 1, 10, "q", "c1")
			},
			used: map[string]uint64{"a/0": 0, "look/0": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			tc.set(n)
			s := n.audit(t)
			if diff := cmp.Diff(tc.used, used(s)); diff != "" {
				t.Errorf("used (-want +got):\n%s", diff)
			}
			if got := strangers(s); !slices.Equal(got, tc.foreign) {
				t.Errorf("foreign are %v, want %v", got, tc.foreign)
			}
			var over []string
			for _, c := range s.Claims {
				for i, d := range c.Devices {
					if d.Over() {
						over = append(over, fmt.Sprintf("%s/%d", c.UID, i))
					}
				}
			}
			if !slices.Equal(over, tc.over) {
				t.Errorf("over are %v, want %v", over, tc.over)
			}
		})
	}
}

// The memory of all processes is somebody's, whatever runs where.
func TestNothingIsLost(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		n := newNode()
		for c := range 1 + random.IntN(4) {
			var grants []gpu.Grant
			for range 1 + random.IntN(3) {
				grants = append(grants, slice("GPU-0", random.Int64N(100)))
			}
			uid := types.UID(fmt.Sprintf("claim%d", c))
			n.claim(uid, []string{fmt.Sprintf("pod%d", random.IntN(3))}, grants...)
			if random.IntN(2) == 0 {
				n.given[fmt.Sprintf("c%d", random.IntN(4))] = []isolation.Share{{Claim: uid, Device: random.IntN(len(grants))}}
			}
		}
		var all uint64
		for pid := range random.IntN(8) {
			bytes := random.Uint64N(200)
			all += bytes
			pod := ""
			if random.IntN(4) > 0 {
				pod = fmt.Sprintf("pod%d", random.IntN(4))
			}
			n.process("GPU-0", pid+1, bytes, pod, fmt.Sprintf("c%d", random.IntN(4)))
		}
		s := n.audit(t)
		var sum uint64
		for _, bytes := range used(s) {
			sum += bytes
		}
		for _, g := range s.GPUs {
			for _, f := range g.Foreign {
				sum += f.Memory
			}
		}
		if sum != all {
			t.Fatalf("%d bytes are in use, and %d are told of: %+v", all, sum, s)
		}
	}
}

func TestPeak(t *testing.T) {
	n := newNode()
	n.claim("a", []string{"p"}, slice("GPU-0", 100))
	n.process("GPU-0", 1, 70, "p", "c1")
	n.audit(t)
	n.processes["GPU-0"][0].Memory = 20
	if d := n.audit(t).Claims[0].Devices[0]; d.Used != 20 || d.Peak != 70 {
		t.Errorf("used %d, peak %d, want 20 and 70", d.Used, d.Peak)
	}
	// The next claim of that name and UID, if there were one, begins anew.
	records := n.records
	n.records = nil
	if s := n.audit(t); len(s.Claims) > 0 || len(s.GPUs) > 0 {
		t.Errorf("claims that are gone are told of: %+v", s)
	}
	n.records = records
	if d := n.audit(t).Claims[0].Devices[0]; d.Peak != 20 {
		t.Errorf("the peak is %d, want 20", d.Peak)
	}
}

func TestPodsAreAskedForWhenNeeded(t *testing.T) {
	n := newNode()
	n.claim("a", []string{"p"}, slice("GPU-0", 100))
	n.process("GPU-0", 1, 10, "p", "c1")
	for range 3 {
		n.audit(t)
	}
	if n.asked != 1 {
		t.Errorf("the API server was asked %d times, want once", n.asked)
	}
	// Another pod gets the claim.
	n.reserve("a", "p", "q")
	n.process("GPU-0", 2, 30, "q", "c2")
	if got := used(n.audit(t))["a/0"]; got != 40 {
		t.Errorf("used are %d, want 40", got)
	}
	// One that gets none is not asked about all the time.
	n.process("GPU-0", 3, 30, "stranger", "c3")
	before := n.asked
	for range 5 {
		n.audit(t)
	}
	if n.asked != before+1 {
		t.Errorf("the API server was asked %d times for the sake of a stranger", n.asked-before)
	}
	n.clock = n.clock.Add(askInterval)
	n.audit(t)
	if n.asked != before+2 {
		t.Error("it was not asked again after a while")
	}
}

func TestWhatFails(t *testing.T) {
	n := newNode()
	n.claim("a", []string{"p"}, slice("GPU-0", 100), slice("GPU-1", 100))
	n.process("GPU-0", 1, 10, "p", "c1")
	n.process("GPU-1", 2, 20, "p", "c1")
	n.broken["GPU-0"] = errors.New("lost")
	s := n.audit(t)
	if d := s.Claims[0].Devices; d[0].Known || !d[1].Known || d[1].Used != 20 {
		t.Errorf("with a GPU that is lost: %+v", d)
	}
	delete(n.broken, "GPU-0")
	if d := n.audit(t).Claims[0].Devices[0]; !d.Known || d.Used != 10 {
		t.Errorf("once it is back: %+v", d)
	}

	// While the API server is silent, a claim keeps the pods that it had.
	n.silent = errors.New("silent")
	n.process("GPU-0", 3, 10, "q", "c3")
	if s := n.audit(t); used(s)["a/0"] != 10 || !slices.Equal(strangers(s), []int{3}) {
		t.Errorf("with a silent API server: %v, foreign %v", used(s), strangers(s))
	}
}

func TestLimitsAreToldOf(t *testing.T) {
	n := newNode()
	n.claim("a", []string{"p"}, slice("GPU-0", 100), slice("GPU-0", 100))
	limit := isolation.Limit{Held: isolation.Held{Shares: []isolation.Share{{Claim: "a", Device: 1}}}, GPU: "GPU-0", Bytes: 100, Repaired: true}
	n.limits = []isolation.Limit{limit}
	d := n.audit(t).Claims[0].Devices
	if len(d[0].Limits) != 0 || len(d[1].Limits) != 1 || !d[1].Limits[0].Repaired {
		t.Errorf("got %+v", d)
	}
}

func TestRunIsWoken(t *testing.T) {
	n := newNode()
	audits := make(chan Snapshot)
	n.Audited = func(_ context.Context, s Snapshot) { audits <- s }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { n.Run(ctx, time.Hour); close(ended) }()
	<-audits
	n.Wake()
	<-audits
	cancel()
	<-ended
}
