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
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/pkg/gpu"
)

func mustScan(t *testing.T, c *Client) Inventory {
	t.Helper()
	inventory, err := c.Scan(t.Context())
	if err != nil {
		t.Fatalf("scanning: %v", err)
	}
	return inventory
}

func checkGPUs(t *testing.T, inventory Inventory, want []gpu.GPU) {
	t.Helper()
	if diff := cmp.Diff(want, inventory.GPUs); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
}

func checkNoProblems(t *testing.T, inventory Inventory) {
	t.Helper()
	if len(inventory.Problems) > 0 {
		t.Errorf("problems: got %v, want none", inventory.Problems)
	}
}

func TestScan(t *testing.T) {
	m := newMachine(t)
	inventory := mustScan(t, m.client())
	checkGPUs(t, inventory, m.gpus())
	checkNoProblems(t, inventory)
}

func TestScanOrderIsNotOfIndexes(t *testing.T) {
	m := newMachine(t)
	want := m.gpus()
	slices.Reverse(m.Devices)
	checkGPUs(t, mustScan(t, m.client()), want)
}

// One GPU loses what it does not tell; nothing else changes.
func TestScanUnansweredQueries(t *testing.T) {
	const failure = nvml.ERROR_UNKNOWN
	for name, tc := range map[string]struct {
		fail  func(d *server.Device)
		query string
		lose  func(g *gpu.GPU)
	}{
		"name": {
			func(d *server.Device) { d.GetNameFunc = func() (string, nvml.Return) { return "x", failure } },
			"nvmlDeviceGetName",
			func(g *gpu.GPU) { g.ProductName = "" },
		},
		"brand": {
			func(d *server.Device) {
				d.GetBrandFunc = func() (nvml.BrandType, nvml.Return) { return nvml.BRAND_TESLA, failure }
			},
			"nvmlDeviceGetBrand",
			func(g *gpu.GPU) { g.Brand = "" },
		},
		"architecture": {
			func(d *server.Device) {
				d.GetArchitectureFunc = func() (nvml.DeviceArchitecture, nvml.Return) { return nvml.DEVICE_ARCH_ADA, failure }
			},
			"nvmlDeviceGetArchitecture",
			func(g *gpu.GPU) { g.Architecture = "" },
		},
		"compute capability": {
			func(d *server.Device) {
				d.GetCudaComputeCapabilityFunc = func() (int, int, nvml.Return) { return 8, 9, failure }
			},
			"nvmlDeviceGetCudaComputeCapability",
			func(g *gpu.GPU) { g.CUDAComputeCapability, g.Multiprocessors = "", 0 },
		},
		"cores": {
			func(d *server.Device) { d.GetNumGpuCoresFunc = func() (int, nvml.Return) { return 128, failure } },
			"nvmlDeviceGetNumGpuCores",
			func(g *gpu.GPU) { g.Multiprocessors = 0 },
		},
		"memory": {
			func(d *server.Device) {
				d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{Total: 1}, failure }
			},
			"nvmlDeviceGetMemoryInfo_v2",
			func(g *gpu.GPU) { g.Memory = nil },
		},
		"MIG mode": {
			func(d *server.Device) { d.GetMigModeFunc = func() (int, int, nvml.Return) { return 1, 1, failure } },
			"nvmlDeviceGetMigMode",
			func(g *gpu.GPU) { g.MIG = nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			tc.fail(m.device(3))
			want := m.gpus()
			tc.lose(&want[3])
			inventory := mustScan(t, m.client())
			checkGPUs(t, inventory, want)
			problem := Problem{GPU: "GPU " + m.device(3).UUID, Query: tc.query, Err: failure}
			if diff := cmp.Diff([]Problem{problem}, inventory.Problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// Without an address a GPU sorts first, and what sysfs tells is lost too.
func TestScanNoPCIAddress(t *testing.T) {
	m := newMachine(t)
	m.device(3).GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{Bus: 7}, nvml.ERROR_UNKNOWN }
	want := m.gpus()
	first := want[3]
	first.PCIBusID, first.PCIeRoot, first.NUMANode = "", "", nil
	want = slices.Insert(slices.Delete(want, 3, 4), 0, first)
	checkGPUs(t, mustScan(t, m.client()), want)
}

func TestScanLeavesOutWhatCannotBeRead(t *testing.T) {
	for name, tc := range map[string]struct {
		fail func(m *machine)
		want Problem
	}{
		"no handle": {
			func(m *machine) {
				handle := m.DeviceGetHandleByIndexFunc
				m.DeviceGetHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
					if index == 3 {
						return nil, nvml.ERROR_IRQ_ISSUE
					}
					return handle(index)
				}
			},
			Problem{GPU: "GPU at index 3", Query: "nvmlDeviceGetHandleByIndex", Err: nvml.ERROR_IRQ_ISSUE, LeftOut: true},
		},
		"no UUID": {
			func(m *machine) {
				m.device(3).GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_NOT_SUPPORTED }
			},
			Problem{GPU: "GPU at PCI address 0000:13:00.0", Query: "nvmlDeviceGetUUID", Err: nvml.ERROR_NOT_SUPPORTED, LeftOut: true},
		},
		"neither UUID nor address": {
			func(m *machine) {
				m.device(3).GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
				m.device(3).GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, nvml.ERROR_UNKNOWN }
			},
			Problem{GPU: "GPU at index 3", Query: "nvmlDeviceGetUUID", Err: nvml.ERROR_UNKNOWN, LeftOut: true},
		},
		"lost": {
			func(m *machine) {
				m.device(3).GetBrandFunc = func() (nvml.BrandType, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
				m.device(3).GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_GPU_IS_LOST }
			},
			Problem{GPU: "GPU GPU-00000003-1111-4222-8333-444444444444", Query: "nvmlDeviceGetBrand", Err: nvml.ERROR_GPU_IS_LOST, LeftOut: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			want := slices.Delete(m.gpus(), 3, 4)
			tc.fail(m)
			inventory := mustScan(t, m.client())
			checkGPUs(t, inventory, want)
			if diff := cmp.Diff([]Problem{tc.want}, inventory.Problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScanWhatDoesNotApplyIsNoProblem(t *testing.T) {
	m := newMachine(t)
	d := m.device(0)
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{Total: 1}, nvml.ERROR_NOT_SUPPORTED }
	d.GetMigModeFunc = func() (int, int, nvml.Return) { return 1, 1, nvml.ERROR_NOT_SUPPORTED }
	d.GetNumGpuCoresFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	m.sysfs["devices/pci0000:00/0000:10:00.0/numa_node"].Data = []byte("-1\n")

	want := m.gpus()
	want[0].Memory, want[0].MIG, want[0].Multiprocessors, want[0].NUMANode = nil, nil, 0, nil
	inventory := mustScan(t, m.client())
	checkGPUs(t, inventory, want)
	checkNoProblems(t, inventory)
}

func TestScanMIGMode(t *testing.T) {
	m := newMachine(t)
	m.device(2).MigMode = nvml.DEVICE_MIG_ENABLE
	want := m.gpus()
	want[2].MIG = &gpu.MultiInstance{Enabled: true, Pending: true}
	checkGPUs(t, mustScan(t, m.client()), want)
}

// The mock panics where a function without an answer is called, like a real
// library ends the process where it has no such function.
func TestScanOldDriver(t *testing.T) {
	m := newMachine(t)
	m.lacking = []string{"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetNumGpuCores"}
	want := m.gpus()
	for i := range m.Devices {
		m.device(i).GetMemoryInfo_v2Func = nil
		m.device(i).GetNumGpuCoresFunc = nil
		want[i].Memory = &gpu.Memory{Total: 81920 << 20}
		want[i].Multiprocessors = 0
	}
	inventory := mustScan(t, m.client())
	checkGPUs(t, inventory, want)
	for _, p := range inventory.Problems {
		if p.Query != "nvmlDeviceGetNumGpuCores" || !errors.Is(p, nvml.ERROR_FUNCTION_NOT_FOUND) || p.LeftOut {
			t.Errorf("unexpected problem: %v", p)
		}
	}
	if len(inventory.Problems) != len(m.Devices) {
		t.Errorf("got %d problems, want one per GPU", len(inventory.Problems))
	}
}

func TestScanDriverVersions(t *testing.T) {
	m := newMachine(t)
	m.SystemGetDriverVersionFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
	want := m.gpus()
	for i := range want {
		want[i].DriverVersion = ""
	}
	inventory := mustScan(t, m.client())
	checkGPUs(t, inventory, want)
	problem := Problem{GPU: "all GPUs", Query: "nvmlSystemGetDriverVersion", Err: nvml.ERROR_UNKNOWN}
	if diff := cmp.Diff([]Problem{problem}, inventory.Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestScanSysfsMissing(t *testing.T) {
	m := newMachine(t)
	delete(m.sysfs, "bus/pci/devices/0000:15:00.0")
	want := m.gpus()
	want[5].PCIeRoot, want[5].NUMANode = "", nil
	inventory := mustScan(t, m.client())
	checkGPUs(t, inventory, want)
	if len(inventory.Problems) != 1 || inventory.Problems[0].GPU != "GPU "+want[5].UUID || inventory.Problems[0].LeftOut {
		t.Errorf("problems: got %v, want one about the PCIe root of GPU %s", inventory.Problems, want[5].UUID)
	}
}

// The indexes move by one while they are read: a GPU must not be there twice.
func TestScanIndexesMoveMeanwhile(t *testing.T) {
	m := newMachine(t)
	handle := m.DeviceGetHandleByIndexFunc
	m.DeviceGetHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
		if index >= 4 {
			index--
		}
		return handle(index)
	}
	inventory := mustScan(t, m.client())
	checkGPUs(t, inventory, m.gpus()[:7])
	if len(inventory.Problems) != 1 || !inventory.Problems[0].LeftOut {
		t.Errorf("problems: got %v, want one about index 4", inventory.Problems)
	}
}

func TestScanCancelled(t *testing.T) {
	m := newMachine(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.client().Scan(ctx)
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrDriverUnavailable) {
		t.Errorf("error: got %v, want the context's alone", err)
	}
}
