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

package nvidia

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/state"
	"github.com/memslice/memslice/pkg/gpu"
)

// onDriver runs a test with a client of the simulated driver of one preset, in a
// process of its own. The GPU is the first one.
func onDriver(t *testing.T, preset string, test func(t *testing.T, d *fakegputest.Driver, c *Client, uuid string)) {
	fakegputest.Isolate(t, func(t *testing.T) {
		d := fakegputest.New(t, preset)
		c := New(Options{DriverRoot: d.Path, SysFS: os.DirFS(d.Path + "/sys").(fs.ReadLinkFS)})
		t.Cleanup(c.Close)
		test(t, d, c, mustScan(t, c).GPUs[0].UUID)
	})
}

func find(t *testing.T, c *Client, uuid string) gpu.GPU {
	t.Helper()
	for _, g := range mustScan(t, c).GPUs {
		if g.UUID == uuid {
			return g
		}
	}
	t.Fatalf("no GPU %s", uuid)
	return gpu.GPU{}
}

func place(profile string, start, size int) gpu.Partition {
	return gpu.Partition{Profile: profile, Start: start, Size: size}
}

func TestScanProfiles(t *testing.T) {
	onDriver(t, "h100x8", func(t *testing.T, _ *fakegputest.Driver, c *Client, uuid string) {
		mig := find(t, c, uuid).MIG
		if mig == nil || mig.Enabled || mig.Pending || len(mig.Instances) > 0 {
			t.Fatalf("MIG of a GPU outside MIG mode: %+v", mig)
		}
		var names []string
		for _, p := range mig.Profiles {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		want := []string{"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("profiles (-want +got):\n%s", diff)
		}
		at := slices.IndexFunc(mig.Profiles, func(p gpu.Profile) bool { return p.Name == "3g.40gb" })
		got := mig.Profiles[at]
		got.ID = 0
		if diff := cmp.Diff(gpu.Profile{
			Name: "3g.40gb", MemorySlices: 4, ComputeSlices: 3, Count: 2, Memory: 40448 << 20, Multiprocessors: 60,
			Engines: gpu.Engines{Copy: 3, Decoders: 3, JPEG: 3}, Starts: []int{0, 4},
		}, got); diff != "" {
			t.Errorf("profile (-want +got):\n%s", diff)
		}
	})
}

func TestScanOfGPUsWithoutMIG(t *testing.T) {
	onDriver(t, "t4", func(t *testing.T, _ *fakegputest.Driver, c *Client, uuid string) {
		if mig := find(t, c, uuid).MIG; mig != nil {
			t.Errorf("a T4 has MIG: %+v", mig)
		}
	})
}

// A GPU that does not tell about MIG is a GPU all the same.
func TestScanProblemsWithMIG(t *testing.T) {
	for _, query := range []state.Query{state.QueryGPUInstanceProfile, state.QueryPossiblePlacements} {
		t.Run(string(query), func(t *testing.T) {
			onDriver(t, "h100x8", func(t *testing.T, d *fakegputest.Driver, c *Client, uuid string) {
				d.UpdateGPU(t, uuid, func(g *state.GPU) { g.Fail(query, state.Unknown) })
				inventory := mustScan(t, c)
				if len(inventory.GPUs) != 8 || len(inventory.Problems) == 0 {
					t.Errorf("%d GPUs, problems %v", len(inventory.GPUs), inventory.Problems)
				}
				for _, p := range inventory.Problems {
					if p.LeftOut || !strings.Contains(p.GPU, uuid) {
						t.Errorf("problem: %v", p)
					}
				}
				if g := find(t, c, uuid); g.MIG == nil || len(g.MIG.Profiles) != 0 || g.Multiprocessors == 0 {
					t.Errorf("GPU: %+v", g)
				}
			})
		})
	}
}

// An instance from its making to its end, next to others.
func TestInstance(t *testing.T) {
	onDriver(t, "h100x8", func(t *testing.T, _ *fakegputest.Driver, c *Client, uuid string) {
		ctx := t.Context()
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.CreateInstance(ctx, uuid, place("1g.10gb", 6, 1)); err == nil {
			t.Error("an instance was made outside MIG mode")
		}
		ok(c.SetMIGMode(ctx, uuid, true))
		if on, err := c.MIGEnabled(ctx, uuid); !on || err != nil {
			t.Fatalf("MIG mode after it was turned on: %t, %v", on, err)
		}
		small, err := c.CreateInstance(ctx, uuid, place("1g.10gb", 6, 1))
		ok(err)
		large, err := c.CreateInstance(ctx, uuid, place("4g.40gb", 0, 4))
		ok(err)
		if small.Partition != place("1g.10gb", 6, 1) || !strings.HasPrefix(small.UUID, "MIG-") || small.UUID == large.UUID {
			t.Errorf("made %+v and %+v", small, large)
		}
		if small.Memory != 9984<<20 || small.Multiprocessors != 16 || small.Engines != (gpu.Engines{Copy: 1, Decoders: 1, JPEG: 1}) {
			t.Errorf("a 1g.10gb has %+v", small)
		}
		listed, err := c.Instances(ctx, uuid)
		ok(err)
		if diff := cmp.Diff([]gpu.Instance{large, small}, listed); diff != "" {
			t.Errorf("listed (-made +got):\n%s", diff)
		}
		if diff := cmp.Diff(listed, find(t, c, uuid).MIG.Instances); diff != "" {
			t.Errorf("scanned (-listed +got):\n%s", diff)
		}
		for name, p := range map[string]gpu.Partition{
			"taken":         place("1g.10gb", 6, 1),
			"partly taken":  place("3g.40gb", 4, 4),
			"no such place": place("1g.10gb", 7, 1),
			"no profile":    place("5g.50gb", 0, 5),
		} {
			if made, err := c.CreateInstance(ctx, uuid, p); err == nil {
				t.Errorf("%s: made %+v", name, made)
			}
		}
		if err := c.SetMIGMode(ctx, uuid, false); err == nil {
			t.Error("MIG mode was turned off with instances")
		}
		ok(c.DestroyInstance(ctx, uuid, large.GPUInstance))
		ok(c.DestroyInstance(ctx, uuid, large.GPUInstance))
		ok(c.DestroyInstance(ctx, uuid, small.GPUInstance))
		again, err := c.CreateInstance(ctx, uuid, place("1g.10gb", 6, 1))
		ok(err)
		if again.UUID == small.UUID {
			t.Error("two instances had one UUID")
		}
		ok(c.DestroyInstance(ctx, uuid, again.GPUInstance))
		ok(c.SetMIGMode(ctx, uuid, false))
		if listed, err := c.Instances(ctx, uuid); err != nil || len(listed) > 0 {
			t.Errorf("outside MIG mode: %v, %v", listed, err)
		}
	})
}

// Nothing is left of an instance whose compute instance cannot be made.
func TestCreateInstanceFailsHalfWay(t *testing.T) {
	onDriver(t, "h100x8", func(t *testing.T, d *fakegputest.Driver, c *Client, uuid string) {
		if err := c.SetMIGMode(t.Context(), uuid, true); err != nil {
			t.Fatal(err)
		}
		d.UpdateGPU(t, uuid, func(g *state.GPU) { g.Fail(state.QueryCreateComputeInstance, state.Unknown) })
		_, err := c.CreateInstance(t.Context(), uuid, place("2g.20gb", 2, 2))
		if err == nil || !strings.Contains(err.Error(), "compute instance") || !strings.Contains(err.Error(), uuid) {
			t.Errorf("error: %v", err)
		}
		if left, err := c.Instances(t.Context(), uuid); err != nil || len(left) > 0 {
			t.Errorf("left: %+v, %v", left, err)
		}
		// And where even that fails, it is found.
		d.UpdateGPU(t, uuid, func(g *state.GPU) { g.Fail(state.QueryDestroyGPUInstance, state.Unknown) })
		_, err = c.CreateInstance(t.Context(), uuid, place("2g.20gb", 2, 2))
		if err == nil || !strings.Contains(err.Error(), "removing what was made") {
			t.Errorf("error: %v", err)
		}
		left, err := c.Instances(t.Context(), uuid)
		if err != nil || len(left) != 1 || left[0].UUID != "" || left[0].Partition != place("2g.20gb", 2, 2) {
			t.Errorf("left: %+v, %v", left, err)
		}
	})
}

func TestSetMIGModeNamesWhatIsInTheWay(t *testing.T) {
	onDriver(t, "h100x8", func(t *testing.T, d *fakegputest.Driver, c *Client, uuid string) {
		d.UpdateGPU(t, uuid, func(g *state.GPU) {
			g.Processes = append(g.Processes, state.Process{PID: 4711, Name: "dcgm-exporter"})
		})
		err := c.SetMIGMode(t.Context(), uuid, true)
		if err == nil || !strings.Contains(err.Error(), "process 4711 (dcgm-exporter)") || !strings.Contains(err.Error(), uuid) {
			t.Errorf("error: %v", err)
		}
		if on, err := c.MIGEnabled(t.Context(), uuid); on || err != nil {
			t.Errorf("the mode is on: %t, %v", on, err)
		}
	})
}

func TestSetMIGModeBeforeHopper(t *testing.T) {
	onDriver(t, "a100x8", func(t *testing.T, d *fakegputest.Driver, c *Client, uuid string) {
		err := c.SetMIGMode(t.Context(), uuid, true)
		if err == nil || !strings.Contains(err.Error(), "nvidia-smi --gpu-reset -i "+uuid) {
			t.Errorf("error: %v", err)
		}
		if mig := find(t, c, uuid).MIG; mig.Enabled || !mig.Pending {
			t.Errorf("MIG before the reset: %+v", mig)
		}
		d.UpdateGPU(t, uuid, func(g *state.GPU) {
			if err := g.Reset(); err != nil {
				t.Error(err)
			}
		})
		if mig := find(t, c, uuid).MIG; !mig.Enabled {
			t.Errorf("MIG after the reset: %+v", mig)
		}
	})
}

// Compute instances that have a part of their GPU instance are devices of their
// own, with nvidia-smi's names.
func TestScanDividedInstances(t *testing.T) {
	onDriver(t, "h100x8", func(t *testing.T, d *fakegputest.Driver, c *Client, uuid string) {
		if err := c.SetMIGMode(t.Context(), uuid, true); err != nil {
			t.Fatal(err)
		}
		d.UpdateGPU(t, uuid, func(g *state.GPU) {
			i, err := g.CreateInstance(9, 4) // 3g.40gb
			if err != nil {
				t.Fatal(err)
			}
			for _, slices := range []int{1, 2} {
				if _, err := g.CreateCompute(i, slices-1); err != nil {
					t.Fatal(err)
				}
			}
		})
		instances := find(t, c, uuid).MIG.Instances
		if len(instances) != 2 || instances[0].Partition != place("1c.3g.40gb", 4, 4) || instances[1].Partition != place("2c.3g.40gb", 4, 4) ||
			instances[0].ComputeInstance == instances[1].ComputeInstance {
			t.Fatalf("instances: %+v", instances)
		}
		if err := c.DestroyInstance(t.Context(), uuid, instances[0].GPUInstance); err != nil {
			t.Fatal(err)
		}
		if left := find(t, c, uuid).MIG.Instances; len(left) > 0 {
			t.Errorf("left: %+v", left)
		}
	})
}

// Without a driver, it is that which is said.
func TestPartitionWithoutDriver(t *testing.T) {
	onDriver(t, "h100x8", func(t *testing.T, d *fakegputest.Driver, c *Client, uuid string) {
		d.Update(t, func(s *state.State) error {
			s.UnloadDriver()
			return nil
		})
		_, createErr := c.CreateInstance(t.Context(), uuid, place("1g.10gb", 0, 1))
		_, listErr := c.Instances(t.Context(), uuid)
		for _, err := range []error{createErr, listErr, c.SetMIGMode(t.Context(), uuid, true), c.DestroyInstance(t.Context(), uuid, 1)} {
			if !errors.Is(err, ErrDriverUnavailable) {
				t.Errorf("got %v, want it to be ErrDriverUnavailable", err)
			}
		}
		d.Update(t, func(s *state.State) error {
			s.LoadDriver()
			return nil
		})
		if _, err := c.Instances(t.Context(), uuid); err != nil {
			t.Errorf("with the driver back: %v", err)
		}
	})
}
