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
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/pkg/gpu"
)

const ownCgroup = "/sys/fs/cgroup/plugin"

// limiter is a GPU that limits cgroups.
type limiter struct {
	limits map[string]uint64
	soft   []uint64 // of each call
	refuse nvml.Return
	forget bool // to have taken the limit
}

func (l *limiter) set(cgroup string, soft, hard uint64) nvml.Return {
	l.soft = append(l.soft, soft)
	if l.refuse != nvml.SUCCESS {
		return l.refuse
	}
	if l.limits[cgroup] = hard; hard == unlimited || l.forget {
		delete(l.limits, cgroup)
	}
	return nvml.SUCCESS
}

func (l *limiter) get(cgroup string) (nvml.MemoryLimits_v1, nvml.Return) {
	hard, ok := l.limits[cgroup]
	if !ok {
		return nvml.MemoryLimits_v1{}, nvml.ERROR_NOT_FOUND
	}
	return nvml.MemoryLimits_v1{HardLimit: hard}, nvml.SUCCESS
}

// limited has device 0 limit cgroups.
func (m *machine) limited() *limiter {
	l := &limiter{limits: map[string]uint64{}}
	m.device(0).SetMemoryLimits_v1Func, m.device(0).GetMemoryLimits_v1Func = l.set, l.get
	for i := range m.Devices[1:] {
		d := m.device(i + 1)
		d.SetMemoryLimits_v1Func = func(string, uint64, uint64) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }
	}
	return l
}

func TestLimitsAreTried(t *testing.T) {
	type world struct {
		*machine
		*limiter
		c *Client
	}
	for name, tc := range map[string]struct {
		change  func(*world)
		want    bool
		problem string
	}{
		"it can":                      {change: func(*world) {}, want: true},
		"a library without the call":  {change: func(w *world) { w.lacking = []string{"nvmlDeviceSetMemoryLimits_v1"} }},
		"a library that cannot read":  {change: func(w *world) { w.lacking = []string{"nvmlDeviceGetMemoryLimits_v1"} }},
		"a GPU that does not":         {change: func(w *world) { w.refuse = nvml.ERROR_NOT_SUPPORTED }},
		"not allowed to":              {change: func(w *world) { w.refuse = nvml.ERROR_NO_PERMISSION }, problem: ownCgroup},
		"it says so and does not":     {change: func(w *world) { w.forget = true }, problem: "the driver says"},
		"not asked for":               {change: func(w *world) { w.c.cgroup = nil }},
		"its own cgroup is not known": {change: func(w *world) { w.c.cgroup = func() (string, error) { return "", errors.New("no cgroup v2") } }, problem: "no cgroup v2"},
		"a GPU in MIG mode": {change: func(w *world) {
			w.device(0).GetMigModeFunc = func() (int, int, nvml.Return) { return 1, 1, nvml.SUCCESS }
		}},
		"a GPU whose memory is unknown": {change: func(w *world) {
			w.device(0).GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, nvml.ERROR_NOT_SUPPORTED }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			w := &world{m, m.limited(), m.client()}
			w.c.cgroup = func() (string, error) { return ownCgroup, nil }
			tc.change(w)
			inventory, err := w.c.Scan(t.Context())
			if err != nil || len(inventory.GPUs) != len(m.Devices) {
				t.Fatalf("%d GPUs, %v", len(inventory.GPUs), err)
			}
			for i, g := range inventory.GPUs {
				if want := tc.want && i == 0; g.MemoryLimits != want {
					t.Errorf("GPU %d: MemoryLimits is %t, want %t", i, g.MemoryLimits, want)
				}
			}
			var told bool
			for _, p := range inventory.Problems {
				told = told || tc.problem != "" && strings.Contains(p.Error(), tc.problem) && p.GPU == "GPU "+m.device(0).UUID
			}
			if told != (tc.problem != "") {
				t.Errorf("problems %v, want one with %q", inventory.Problems, tc.problem)
			}
			if len(w.limits) > 0 {
				t.Errorf("limits are left: %v", w.limits)
			}
		})
	}
}

// What was found out is not tried again with each scan, unless it may change.
func TestLimitsAreTriedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		refuse nvml.Return
		again  bool
	}{
		"success":       {nvml.SUCCESS, false},
		"not supported": {nvml.ERROR_NOT_SUPPORTED, false},
		"an error":      {nvml.ERROR_NO_PERMISSION, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			l, c := m.limited(), m.client()
			c.cgroup = func() (string, error) { return ownCgroup, nil }
			l.refuse = tc.refuse
			first := mustScan(t, c)
			calls := len(l.soft)
			second := mustScan(t, c)
			if again := len(l.soft) > calls; again != tc.again {
				t.Errorf("tried again: %t, want %t", again, tc.again)
			}
			if diff := cmp.Diff(first.GPUs, second.GPUs); diff != "" {
				t.Errorf("the second scan differs:\n%s", diff)
			}
		})
	}
}

func TestMemoryLimit(t *testing.T) {
	m := newMachine(t)
	l, c := m.limited(), m.client()
	uuid, cgroup := m.device(0).UUID, "/sys/fs/cgroup/pod"
	if bytes, found, err := c.MemoryLimit(t.Context(), uuid, cgroup); err != nil || found {
		t.Errorf("before a limit is set: %d, %t, %v", bytes, found, err)
	}
	const odd = 4<<30 + 1
	if err := c.SetMemoryLimit(t.Context(), uuid, cgroup, odd); err != nil {
		t.Fatal(err)
	}
	if bytes, found, err := c.MemoryLimit(t.Context(), uuid, cgroup); err != nil || !found || bytes != odd {
		t.Errorf("after %d was set: %d, %t, %v", odd, bytes, found, err)
	}
	for _, soft := range l.soft {
		if soft != 0 {
			t.Errorf("a soft limit of %d was set, which would outlive the cgroup", soft)
		}
	}
	l.refuse = nvml.ERROR_OPERATING_SYSTEM
	err := c.SetMemoryLimit(t.Context(), uuid, cgroup, 1)
	if err == nil || !strings.Contains(err.Error(), uuid) || !strings.Contains(err.Error(), cgroup) {
		t.Errorf("a refusal: %v, want the GPU and the cgroup", err)
	}
	m.lacking = []string{"nvmlDeviceSetMemoryLimits_v1"}
	if err := c.SetMemoryLimit(t.Context(), uuid, cgroup, 1); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("a driver without the call: %v", err)
	}
}

func TestProcesses(t *testing.T) {
	info := func(pid uint32, bytes uint64, instance uint32) nvml.ProcessInfo {
		return nvml.ProcessInfo{Pid: pid, UsedGpuMemory: bytes, GpuInstanceId: instance, ComputeInstanceId: noInstance}
	}
	list := func(infos ...nvml.ProcessInfo) func() ([]nvml.ProcessInfo, nvml.Return) {
		return func() ([]nvml.ProcessInfo, nvml.Return) { return infos, nvml.SUCCESS }
	}
	none := func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	m := newMachine(t)
	d := m.device(0)
	d.GetComputeRunningProcessesFunc = list(info(7, 5, noInstance), info(4, unknownMemory, noInstance), info(9, 1, 3), info(9, 2, 4))
	d.GetMPSComputeRunningProcessesFunc = list(info(8, 6, noInstance))
	d.GetGraphicsRunningProcessesFunc = list(info(7, 9, noInstance))
	got, err := m.client().Processes(t.Context(), d.UUID)
	want := []gpu.Process{
		{PID: 4, GPUInstance: gpu.NoGPUInstance},
		{PID: 7, Memory: 9, MemoryKnown: true, GPUInstance: gpu.NoGPUInstance},
		{PID: 8, Memory: 6, MemoryKnown: true, GPUInstance: gpu.NoGPUInstance},
		{PID: 9, Memory: 1, MemoryKnown: true, GPUInstance: 3},
		{PID: 9, Memory: 2, MemoryKnown: true, GPUInstance: 4},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	d.GetGraphicsRunningProcessesFunc = none
	if _, err := m.client().Processes(t.Context(), d.UUID); err != nil {
		t.Errorf("a GPU that does not draw: %v", err)
	}
	d.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_UNKNOWN }
	if _, err := m.client().Processes(t.Context(), d.UUID); err == nil || !strings.Contains(err.Error(), "nvmlDeviceGetMPSComputeRunningProcesses_v3") {
		t.Errorf("a failed question: %v", err)
	}
}
