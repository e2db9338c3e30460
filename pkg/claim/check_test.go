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

package claim

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/pkg/gpu"
)

func grant(device string, memory, compute int64) gpu.Grant {
	form := gpu.Slice
	if strings.HasPrefix(device, "gpu") {
		form = gpu.Whole
	}
	return gpu.Grant{Request: "gpu", Pool: pool, Device: device, Form: form,
		UUID: "GPU-00000000-0000-4000-8000-00000000000" + device[len(device)-1:], Memory: memory, Compute: compute}
}

// mig is the grant of a MIG partition.
func mig(i, size, start int) gpu.Grant {
	d := partition(i, size, start)
	return gpu.Grant{Request: "gpu", Pool: d.Pool, Device: d.Name, Form: gpu.MIG, UUID: d.GPU.UUID, Partition: d.Partition, Memory: d.Memory}
}

// static is one of an instance that is there already.
func static(g gpu.Grant, uuid string) gpu.Grant {
	g.Existing = uuid
	return g
}

func admin(g gpu.Grant) gpu.Grant {
	g.AdminAccess, g.Memory, g.Compute = true, 0, 0
	return g
}

func TestCheck(t *testing.T) {
	held := func(grants ...gpu.Grant) []Holding {
		var hs []Holding
		for i, g := range grants {
			hs = append(hs, Holding{UID: types.UID(fmt.Sprint("held-", i)), Namespace: "ns", Name: fmt.Sprint("held-", i), Grant: g})
		}
		return hs
	}
	for name, tc := range map[string]struct {
		want []gpu.Grant
		held []Holding
		errs []string
	}{
		"on a free GPU":            {want: []gpu.Grant{grant("slice-0", 80*gib, 100)}},
		"exactly what is left":     {want: []gpu.Grant{grant("slice-0", 30*gib, 20)}, held: held(grant("slice-0", 50*gib, 80))},
		"whole and free":           {want: []gpu.Grant{grant("gpu-0", 80*gib, 0)}},
		"whole beside another GPU": {want: []gpu.Grant{grant("gpu-0", 80*gib, 0)}, held: held(grant("gpu-1", 80*gib, 0), grant("slice-2", gib, 0))},
		"nothing granted":          {held: held(grant("gpu-0", 80*gib, 0))},
		"a byte too much": {
			want: []gpu.Grant{grant("slice-0", 30*gib+1, 0)}, held: held(grant("slice-0", 50*gib, 0)),
			errs: []string{"claim ns/claim", `request "gpu"`, uuid, "32212254721 memory", "30Gi of the 80Gi", "claim ns/held-0 (50Gi memory)", "delete this pod"},
		},
		"a percent too much": {
			want: []gpu.Grant{grant("slice-0", gib, 21)}, held: held(grant("slice-0", gib, 80)),
			errs: []string{"21% compute", "20% of its compute is left", "claim ns/held-0 (1Gi memory and 80% compute)"},
		},
		"whole where shares are": {
			want: []gpu.Grant{grant("gpu-0", 80*gib, 0)}, held: held(grant("slice-0", gib, 0)),
			errs: []string{"the whole of GPU " + uuid, "shares are in use", "ns/held-0"},
		},
		"a share of a GPU held whole": {
			want: []gpu.Grant{grant("slice-0", gib, 0)}, held: held(grant("gpu-0", 80*gib, 0)),
			errs: []string{"another claim has the whole GPU", "claim ns/held-0 (the whole)"},
		},
		"whole twice": {
			want: []gpu.Grant{grant("gpu-0", 80*gib, 0)}, held: held(grant("gpu-0", 80*gib, 0)),
			errs: []string{"another claim has the whole GPU"},
		},
		"its own shares count": {
			want: []gpu.Grant{grant("slice-0", 41*gib, 0), grant("slice-0", 40*gib, 0)},
			errs: []string{"39Gi of the 80Gi", "ns/claim (41Gi memory)"},
		},
		"its own forms exclude each other": {
			want: []gpu.Grant{grant("slice-0", gib, 0), grant("gpu-0", 80*gib, 0)},
			errs: []string{"shares are in use"},
		},
		"what it held before does not count": {
			want: []gpu.Grant{grant("slice-0", 80*gib, 0)},
			held: []Holding{{UID: "uid-1", Grant: grant("gpu-0", 80*gib, 0)}},
		},
		"a partition of a free GPU": {want: []gpu.Grant{mig(0, 2, 4)}, held: held(mig(1, 8, 0), grant("slice-2", gib, 0))},
		"partitions side by side":   {want: []gpu.Grant{mig(0, 2, 4), mig(0, 1, 7)}, held: held(mig(0, 4, 0), mig(0, 1, 6))},
		"partitions that overlap": {
			want: []gpu.Grant{mig(0, 2, 4)}, held: held(mig(0, 1, 0), mig(0, 1, 5), mig(0, 1, 6)),
			errs: []string{"claim ns/claim", `request "gpu"`, "cannot have 2g.20gb at memory slice 4 of GPU " + uuid, "another claim has a partition there",
				"held by claim ns/held-1 (1g.10gb at memory slice 5). The kubelet"},
		},
		"its own partitions count": {
			want: []gpu.Grant{mig(0, 2, 4), mig(0, 4, 4)},
			errs: []string{"cannot have 3g.40gb at memory slice 4", "ns/claim (2g.20gb at memory slice 4)"},
		},
		"an instance twice": {
			want: []gpu.Grant{static(mig(0, 2, 4), "MIG-a")}, held: held(static(mig(0, 2, 4), "MIG-a")),
			errs: []string{"cannot have 2g.20gb at memory slice 4", "another claim has a partition there"},
		},
		"two compute instances of one GPU instance": {want: []gpu.Grant{static(mig(0, 2, 4), "MIG-a")}, held: held(static(mig(0, 2, 4), "MIG-b"))},
		"a partition where shares are": {
			want: []gpu.Grant{mig(0, 2, 4)}, held: held(grant("slice-0", gib, 0)),
			errs: []string{"2g.20gb at memory slice 4", "its shares are in use", "claim ns/held-0 (1Gi memory)"},
		},
		"a partition of a GPU held whole": {
			want: []gpu.Grant{mig(0, 2, 4)}, held: held(grant("gpu-0", 80*gib, 0)),
			errs: []string{"2g.20gb at memory slice 4", "another claim has the whole GPU", "claim ns/held-0 (the whole)"},
		},
		"a share where partitions are": {
			want: []gpu.Grant{grant("slice-0", gib, 0)}, held: held(mig(0, 1, 7)),
			errs: []string{"1Gi memory of GPU " + uuid, "its MIG partitions are in use", "claim ns/held-0 (1g.10gb at memory slice 7)"},
		},
		"whole where partitions are": {
			want: []gpu.Grant{grant("gpu-0", 80*gib, 0)}, held: held(mig(0, 1, 7), mig(0, 1, 0)),
			errs: []string{"the whole of GPU " + uuid, "its MIG partitions are in use", "held-0", "held-1"},
		},
		"admin access to a partition":                     {want: []gpu.Grant{admin(mig(0, 2, 4))}, held: held(mig(0, 2, 4))},
		"a partition that only an administrator looks at": {want: []gpu.Grant{mig(0, 2, 4)}, held: held(admin(mig(0, 2, 4)), admin(grant("slice-0", 0, 0)))},
		"admin access is always possible":                 {want: []gpu.Grant{admin(grant("slice-0", 0, 0))}, held: held(grant("gpu-0", 80*gib, 0))},
		"admin access is in nobody's way":                 {want: []gpu.Grant{grant("gpu-0", 80*gib, 0)}, held: held(admin(grant("slice-0", 0, 0)))},
		"sums do not wrap around": {
			want: []gpu.Grant{grant("slice-0", math.MaxInt64, 0), grant("slice-0", math.MaxInt64, 0)},
			errs: []string{"80Gi of the 80Gi"},
		},
		"more holders than fit a message": {
			want: []gpu.Grant{grant("slice-0", gib, 0)},
			held: held(grant("slice-0", 70*gib, 0), grant("slice-0", 2*gib, 0), grant("slice-0", 2*gib, 0), grant("slice-0", 2*gib, 0),
				grant("slice-0", 2*gib, 0), grant("slice-0", gib, 0), grant("slice-0", gib, 0)),
			errs: []string{"0 of the 80Gi", "held-4", "2 more"},
		},
		"a device that is gone": {
			want: []gpu.Grant{grant("slice-9", gib, 0)},
			errs: []string{`"slice-9"`, `"node-1"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(Plan{UID: "uid-1", Namespace: "ns", Name: "claim", Grants: tc.want}, tc.held, gpus(3, 80*gib))
			if (err != nil) != (tc.errs != nil) {
				t.Fatalf("error %v, want one with %q", err, tc.errs)
			}
			for _, part := range tc.errs {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

// TestCheckNamesWhatIsInTheWay: only those are worth waiting for.
func TestCheckNamesWhatIsInTheWay(t *testing.T) {
	var err *HeldError
	held := []Holding{{UID: "left", Grant: mig(0, 4, 0)}, {UID: "there", Grant: mig(0, 2, 4)}}
	if !errors.As(Check(Plan{UID: "uid-1", Grants: []gpu.Grant{mig(0, 1, 5)}}, held, gpus(1, 80*gib)), &err) {
		t.Fatal("partitions that overlap are no HeldError")
	}
	if len(err.By) != 1 || err.By[0].UID != "there" {
		t.Errorf("held by %v, want the claim of the partition that overlaps", err.By)
	}
}

// TestCheckCapacity is the card of 46068Mi that 23 shares of 2000Mi fit and the
// 24th does not.
func TestCheckCapacity(t *testing.T) {
	const mib = int64(1) << 20
	var held []Holding
	for i := range 24 {
		p := Plan{UID: types.UID(fmt.Sprint(i)), Grants: []gpu.Grant{grant("slice-0", 2000*mib, 0)}}
		err := Check(p, held, gpus(1, 46068*mib))
		if (err == nil) != (i < 23) {
			t.Fatalf("share %d: %v", i+1, err)
		}
		held = append(held, Holding{UID: p.UID, Grant: p.Grants[0]})
	}
}

// TestCheckAgainstModel lets claims come and go at random. The model knows only
// what a GPU is, and says of the whole outcome whether it is possible.
func TestCheckAgainstModel(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	devices := gpus(3, 80*gib)
	prepared := map[types.UID]Plan{}
	accepted, refused := 0, 0
	for step := range 20000 {
		uid := types.UID(fmt.Sprint("claim-", random.IntN(12)))
		if random.IntN(3) == 0 {
			delete(prepared, uid)
			continue
		}
		p := Plan{UID: uid, Grants: randomGrants(random)}
		var held []Holding
		outcome := map[types.UID][]gpu.Grant{uid: p.Grants}
		for other, plan := range prepared {
			for _, g := range plan.Grants {
				held = append(held, Holding{UID: other, Grant: g})
			}
			if other != uid {
				outcome[other] = plan.Grants
			}
		}
		err := Check(p, held, devices)
		if want := possible(outcome, 80*gib); (err == nil) != want {
			t.Fatalf("step %d: outcome %v is possible: %v, but Check says %v", step, outcome, want, err)
		}
		if err == nil {
			prepared[uid] = p
			accepted++
		} else {
			refused++
		}
	}
	if accepted < 1000 || refused < 1000 {
		t.Errorf("%d accepted, %d refused: the test is one-sided", accepted, refused)
	}
}

func randomGrants(random *rand.Rand) []gpu.Grant {
	var grants []gpu.Grant
	for range 1 + random.IntN(2) {
		n := random.IntN(3)
		var g gpu.Grant
		switch random.IntN(6) {
		case 0:
			g = grant(fmt.Sprint("gpu-", n), 80*gib, 0)
		case 1, 2, 3:
			size := 1 << random.IntN(3)
			g = mig(n, size, size*random.IntN(memorySlices/size))
		default:
			g = grant(fmt.Sprint("slice-", n), 1+random.Int64N(40*gib), random.Int64N(60))
		}
		if random.IntN(10) == 0 {
			g = admin(g)
		}
		grants = append(grants, g)
	}
	return grants
}

// possible is the definition: a GPU is either whole and used once, or its
// shares add up to what it has, or each of its memory slices is in one partition.
func possible(claims map[types.UID][]gpu.Grant, memory int64) bool {
	type use struct {
		whole, shares, compute int64
		memory                 big.Int
		partitions             [memorySlices]int
	}
	uses := map[string]*use{}
	for _, grants := range claims {
		for _, g := range grants {
			if g.AdminAccess {
				continue
			}
			if uses[g.UUID] == nil {
				uses[g.UUID] = &use{}
			}
			u := uses[g.UUID]
			if g.Form == gpu.Whole {
				u.whole++
				continue
			}
			if g.Form == gpu.MIG {
				for i := range g.Partition.Size {
					u.partitions[g.Partition.Start+i]++
				}
				continue
			}
			u.shares++
			u.compute += g.Compute
			u.memory.Add(&u.memory, big.NewInt(g.Memory))
		}
	}
	for _, u := range uses {
		forms := 0
		for _, n := range []int64{u.whole, u.shares, int64(slices.Max(u.partitions[:]))} {
			if n > 0 {
				forms++
			}
		}
		if forms > 1 || u.whole > 1 || slices.Max(u.partitions[:]) > 1 || u.compute > 100 || u.memory.Cmp(big.NewInt(memory)) > 0 {
			return false
		}
	}
	return true
}
