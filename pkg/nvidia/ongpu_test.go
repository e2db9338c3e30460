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
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/state"
	"github.com/memslice/memslice/pkg/gpu"
)

// operations are all that can be done with a GPU, each of which has to fail.
func operations(ctx context.Context, c *Client, uuid string) map[string]error {
	_, enabled := c.MIGEnabled(ctx, uuid)
	_, listed := c.Instances(ctx, uuid)
	_, created := c.CreateInstance(ctx, uuid, place("1g.10gb", 0, 1))
	return map[string]error{
		"MIGEnabled":      enabled,
		"Instances":       listed,
		"CreateInstance":  created,
		"DestroyInstance": c.DestroyInstance(ctx, uuid, 1),
		"SetMIGMode":      c.SetMIGMode(ctx, uuid, true),
	}
}

// A function that the driver lacks would end the process when called.
func TestDriverTooOldForMIG(t *testing.T) {
	for _, symbol := range featureMIG.functions {
		t.Run(symbol, func(t *testing.T) {
			m := newMachine(t)
			m.lacking = []string{symbol}
			c := m.client()
			inventory := mustScan(t, c)
			if len(inventory.GPUs) != len(m.Devices) || len(inventory.Problems) != len(m.Devices) {
				t.Errorf("%d GPUs of %d, problems %v", len(inventory.GPUs), len(m.Devices), inventory.Problems)
			}
			for _, p := range inventory.Problems {
				if p.Query != symbol || p.LeftOut {
					t.Errorf("problem: %v", p)
				}
			}
			for name, err := range operations(t.Context(), c, m.device(0).UUID) {
				if err == nil || !strings.Contains(err.Error(), symbol) || !strings.Contains(err.Error(), "install a newer one") {
					t.Errorf("%s: got %v, want what the driver lacks", name, err)
				}
			}
		})
	}
}

func TestGPUUnavailable(t *testing.T) {
	for name, lose := range map[string]func(*state.State, string) error{
		"fallen off the bus": func(s *state.State, uuid string) error {
			g, err := s.Find(uuid)
			if err == nil {
				g.Lost = true
			}
			return err
		},
		"taken out": func(s *state.State, uuid string) error { return s.Remove(uuid) },
	} {
		for _, scanned := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, scanned since %t", name, scanned), func(t *testing.T) {
				onDriver(t, "h100x8", func(t *testing.T, d *fakegputest.Driver, c *Client, uuid string) {
					if err := c.SetMIGMode(t.Context(), uuid, true); err != nil {
						t.Fatal(err)
					}
					d.Update(t, func(s *state.State) error { return lose(s, uuid) })
					if scanned {
						mustScan(t, c)
					}
					for name, err := range operations(t.Context(), c, uuid) {
						if !errors.Is(err, ErrGPUUnavailable) || errors.Is(err, ErrDriverUnavailable) || !strings.Contains(err.Error(), uuid) {
							t.Errorf("%s: got %v, want ErrGPUUnavailable with the GPU", name, err)
						}
					}
				})
			})
		}
	}
}

// A question that is not answered must not look as if an instance were gone.
func TestInstancesAreAllOrNone(t *testing.T) {
	onDriver(t, "h100x8", func(t *testing.T, d *fakegputest.Driver, c *Client, uuid string) {
		made := mustCreate(t, c, uuid, place("1g.10gb", 0, 1))
		for _, query := range []state.Query{
			state.QueryMIGMode, state.QueryGPUInstanceProfile, state.QueryPossiblePlacements, state.QueryGPUInstances,
			state.QueryGPUInstanceInfo, state.QueryMaxMIGDeviceCount, state.QueryMIGDeviceHandle, state.QueryAttributes,
		} {
			d.UpdateGPU(t, uuid, func(g *state.GPU) { g.Fail(query, state.Unknown) })
			if got, err := c.Instances(t.Context(), uuid); !errors.Is(err, nvml.ERROR_UNKNOWN) {
				t.Errorf("without %s: got %+v and error %v, want NVML's", query, got, err)
			}
			d.UpdateGPU(t, uuid, func(g *state.GPU) { g.ClearFailures() })
			got, err := c.Instances(t.Context(), uuid)
			if diff := cmp.Diff([]gpu.Instance{made}, got); diff != "" || err != nil {
				t.Errorf("with %s again (-want +got), %v:\n%s", query, err, diff)
			}
		}
	})
}

// What NVML does not tell of an instance, it has told of the profile.
func TestInstanceWithoutAttributes(t *testing.T) {
	onDriver(t, "h100x8", func(t *testing.T, d *fakegputest.Driver, c *Client, uuid string) {
		made := mustCreate(t, c, uuid, place("2g.20gb", 0, 2))
		d.UpdateGPU(t, uuid, func(g *state.GPU) { g.Fail(state.QueryAttributes, state.NotSupported) })
		got, err := c.Instances(t.Context(), uuid)
		if diff := cmp.Diff([]gpu.Instance{made}, got); diff != "" || err != nil {
			t.Errorf("instances (-want +got), %v:\n%s", err, diff)
		}
	})
}

// The users that are named are those of the instance, not of its neighbours.
func TestInUse(t *testing.T) {
	onDriver(t, "h100x8", func(t *testing.T, d *fakegputest.Driver, c *Client, uuid string) {
		busy := mustCreate(t, c, uuid, place("1g.10gb", 0, 1))
		other := mustCreate(t, c, uuid, place("1g.10gb", 1, 1))
		d.UpdateGPU(t, uuid, func(g *state.GPU) {
			for i := range uint32(7) {
				g.Processes = append(g.Processes, state.Process{PID: 4007 - i, Name: fmt.Sprint("train-", 7-i), Instance: busy.UUID})
			}
			g.Processes = append(g.Processes, state.Process{PID: 4100, Name: "neighbour", Instance: other.UUID})
		})
		err := c.DestroyInstance(t.Context(), uuid, busy.GPUInstance)
		const users = ": process 4001 (train-1), process 4002 (train-2), process 4003 (train-3), process 4004 (train-4), process 4005 (train-5), 2 more;"
		if !errors.Is(err, nvml.ERROR_IN_USE) || !strings.Contains(err.Error(), users) || !strings.Contains(err.Error(), uuid) {
			t.Errorf("error: %v, want the GPU and %q", err, users)
		}
		if listed, err := c.Instances(t.Context(), uuid); err != nil || len(listed) != 2 {
			t.Errorf("left: %+v, %v", listed, err)
		}
		d.UpdateGPU(t, uuid, func(g *state.GPU) { g.Fail(state.QueryComputeProcesses, state.Unknown) })
		if err := c.DestroyInstance(t.Context(), uuid, busy.GPUInstance); err == nil || !strings.Contains(err.Error(), "monitoring agent") {
			t.Errorf("error where NVML does not tell the users: %v", err)
		}
	})
}

func TestRemedies(t *testing.T) {
	onDriver(t, "h100x8", func(t *testing.T, d *fakegputest.Driver, c *Client, uuid string) {
		mustCreate(t, c, uuid, place("1g.10gb", 0, 1))
		_, err := c.CreateInstance(t.Context(), uuid, place("7g.80gb", 0, 8))
		checkSays(t, err, uuid, "7g.80gb", "nvidia-smi mig -lgi")
		_, err = c.CreateInstance(t.Context(), uuid, place("1g.10gb", 1, 2))
		checkSays(t, err, uuid, "no such profile of 2 memory slices", "-lgipp")
		d.UpdateGPU(t, uuid, func(g *state.GPU) { g.Fail(state.QuerySetMIGMode, state.NoPermission) })
		checkSays(t, c.SetMIGMode(t.Context(), uuid, false), uuid, "MIG mode off", "root")
	})
}

func checkSays(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v does not say %q", err, text)
		}
	}
}

// mustCreate makes an instance, in MIG mode.
func mustCreate(t *testing.T, c *Client, uuid string, p gpu.Partition) gpu.Instance {
	t.Helper()
	err := c.SetMIGMode(t.Context(), uuid, true)
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.CreateInstance(t.Context(), uuid, p)
	if err != nil {
		t.Fatal(err)
	}
	return made
}
