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

package mig

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/state"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/nvidia"
)

// node is the first GPU of a simulated driver, and the plugin's process there.
type node struct {
	*testing.T
	driver *fakegputest.Driver
	client *nvidia.Client
	gpu    gpu.GPU
	dir    string
	p      *Partitions
}

func newNode(t *testing.T) *node {
	n := &node{T: t, driver: fakegputest.New(t, "h100x8"), dir: filepath.Join(t.TempDir(), "marks")}
	n.client = nvidia.New(nvidia.Options{DriverRoot: n.driver.Path, SysFS: os.DirFS(n.driver.Path + "/sys").(fs.ReadLinkFS)})
	t.Cleanup(n.client.Close)
	inventory, err := n.client.Scan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.gpu = inventory.GPUs[0]
	n.restart()
	return n
}

func (n *node) restart() {
	p, err := New(Options{Hardware: n.client, Dir: n.dir, BootID: "boot"})
	if err != nil {
		n.Fatal(err)
	}
	n.p = p
}

func (n *node) grant(p gpu.Partition) gpu.Grant {
	return gpu.Grant{Form: gpu.MIG, UUID: n.gpu.UUID, Partition: p}
}

func (n *node) realise(g gpu.Grant, others ...gpu.Grant) (gpu.Instance, error) {
	return n.p.Realise(n.Context(), g, onDemand, others)
}

// administer is what an administrator or a fault does to the GPU.
func (n *node) administer(do func(*state.GPU) error) {
	n.Helper()
	n.driver.UpdateGPU(n, n.gpu.UUID, func(g *state.GPU) {
		if err := do(g); err != nil {
			n.Error(err)
		}
	})
}

// check looks at the instances that there are.
func (n *node) check(when string, want ...gpu.Partition) {
	n.Helper()
	instances, err := n.client.Instances(n.Context(), n.gpu.UUID)
	if err != nil {
		n.Fatal(err)
	}
	var got []gpu.Partition
	for _, i := range instances {
		got = append(got, i.Partition)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		n.Fatalf("%s (-want +got):\n%s", when, diff)
	}
}

// TestOnDriver makes and removes instances on the simulated driver, in turn with
// an administrator.
func TestOnDriver(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		n := newNode(t)
		made, err := n.realise(n.grant(small))
		if err != nil {
			t.Fatal(err)
		}
		n.check("made for a claim", small)
		n.restart()
		if again, err := n.realise(n.grant(small)); again != made || err != nil {
			t.Errorf("after a restart the instance is %+v, %v; it was %+v", again, err, made)
		}

		n.administer(func(g *state.GPU) error {
			g.Fail(state.QueryCreateComputeInstance, state.Unknown)
			g.Fail(state.QueryDestroyGPUInstance, state.Unknown)
			return nil
		})
		if _, err := n.realise(n.grant(large), n.grant(small)); err == nil {
			t.Error("no error, although no compute instance can be made")
		}
		n.check("made half", large, small)
		n.administer(func(g *state.GPU) error { g.ClearFailures(); return nil })
		n.restart()
		if err := n.p.Sweep(t.Context(), []gpu.Grant{n.grant(small)}); err != nil {
			t.Fatal(err)
		}
		n.check("swept", small)

		n.administer(func(g *state.GPU) error {
			i, err := g.CreateInstance(profileID(t, n.gpu, large.Profile), large.Start)
			if err == nil {
				_, err = g.CreateFullCompute(i)
			}
			return err
		})
		if err := n.p.Release(t.Context(), n.grant(small)); err != nil {
			t.Fatal(err)
		}
		share := gpu.Grant{Form: gpu.Slice, UUID: n.gpu.UUID}
		if _, err := n.realise(share); err == nil || !strings.Contains(err.Error(), "memslice did not make it") {
			t.Errorf("a share beside an administrator's instance: %v", err)
		}
		n.check("an administrator's", large)

		n.administer(func(g *state.GPU) error { return g.DestroyWithCompute(g.Instances[0].ID) })
		if _, err := n.realise(share); err != nil {
			t.Fatal(err)
		}
		if on, err := n.client.MIGEnabled(t.Context(), n.gpu.UUID); on || err != nil {
			t.Errorf("MIG mode is on for a share: %t, %v", on, err)
		}
	})
}

func profileID(t *testing.T, g gpu.GPU, name string) int {
	t.Helper()
	at := slices.IndexFunc(g.MIG.Profiles, func(p gpu.Profile) bool { return p.Name == name })
	if at < 0 {
		t.Fatalf("no profile %s", name)
	}
	return g.MIG.Profiles[at].ID
}
