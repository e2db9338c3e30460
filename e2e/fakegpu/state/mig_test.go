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

package state

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
)

// ids of profiles that all models with seven slices share.
const (
	id1g, id3g = 19, 9
)

// gpuOf is the only GPU that the test looks at: one of a model.
func gpuOf(t *testing.T, model string) *GPU {
	t.Helper()
	m, err := catalog.Lookup(model)
	if err != nil {
		t.Fatal(err)
	}
	return &GPU{UUID: "GPU-0", Model: m.Key}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantResult checks that an error is a refusal with a result, and has a reason.
func wantResult(t *testing.T, err error, want Result) {
	t.Helper()
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Result != want || refusal.Reason == "" {
		t.Errorf("error %v, want a refusal with %v", err, want)
	}
}

func setMode(t *testing.T, gpu *GPU, on bool) error {
	t.Helper()
	activation, err := gpu.SetMIGMode(on)
	must(t, err)
	return activation
}

func TestMIGModeOfHopper(t *testing.T) {
	for _, model := range []string{"h100-sxm5-80gb", "h200-sxm5-141gb", "b200-sxm6-180gb"} {
		t.Run(model, func(t *testing.T) {
			gpu := gpuOf(t, model)
			must(t, gpu.AddProcess(Process{PID: 7, Name: "python"}))
			wantResult(t, setMode(t, gpu, true), InUse)
			if want := (MIGMode{Pending: true}); gpu.MIG != want {
				t.Errorf("mode %+v of a busy GPU, want %+v", gpu.MIG, want)
			}
			must(t, gpu.RemoveProcess(7))
			must(t, setMode(t, gpu, true))
			if want := (MIGMode{Current: true, Pending: true}); gpu.MIG != want {
				t.Errorf("mode %+v of an idle GPU, want %+v", gpu.MIG, want)
			}
			_, err := gpu.CreateInstance(id1g, 0)
			must(t, err)
			must(t, setMode(t, gpu, true))
			wantResult(t, setMode(t, gpu, false), InUse)
			if !gpu.MIG.Current || len(gpu.Instances) != 1 {
				t.Errorf("turning the mode off took the instance: %+v", gpu)
			}
			must(t, gpu.DestroyInstance(gpu.Instances[0].ID))
			must(t, setMode(t, gpu, false))
		})
	}
}

func TestMIGModeBeforeHopper(t *testing.T) {
	for _, model := range []string{"a30", "a100-sxm4-40gb", "a100-sxm4-80gb"} {
		t.Run(model, func(t *testing.T) {
			gpu := gpuOf(t, model)
			wantResult(t, setMode(t, gpu, true), ResetRequired)
			if want := (MIGMode{Pending: true}); gpu.MIG != want {
				t.Errorf("mode %+v before the reset, want %+v", gpu.MIG, want)
			}
			must(t, gpu.AddProcess(Process{PID: 7, Name: "python"}))
			wantResult(t, setMode(t, gpu, true), InUse)
			wantResult(t, gpu.Reset(), InUse)
			must(t, gpu.RemoveProcess(7))
			must(t, gpu.Reset())
			if want := (MIGMode{Current: true, Pending: true}); gpu.MIG != want {
				t.Errorf("mode %+v after the reset, want %+v", gpu.MIG, want)
			}
			wantResult(t, setMode(t, gpu, false), ResetRequired)
			// Asking for the mode in force again takes the pending one back.
			must(t, setMode(t, gpu, true))
			must(t, gpu.Reset())
			if !gpu.MIG.Current {
				t.Error("the mode is off after it was asked for again")
			}
		})
	}
}

func TestNoMIG(t *testing.T) {
	gpu := gpuOf(t, "l4")
	_, err := gpu.SetMIGMode(true)
	wantResult(t, err, NotSupported)
	_, err = gpu.CreateInstance(id1g, 0)
	wantResult(t, err, NotSupported)
	must(t, gpu.Reset())
}

// TestEndOfDriver: instances and processes go with the driver, the mode stays
// where the GPU keeps it.
func TestEndOfDriver(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *State){
		"reloaded": func(_ *testing.T, s *State) { s.UnloadDriver(); s.LoadDriver() },
		"removed": func(t *testing.T, s *State) {
			for i := range s.GPUs {
				must(t, errors.Join(s.Remove(s.GPUs[i].UUID), s.Add(s.GPUs[i].UUID)))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t, "mixed", "")
			for i := range 2 {
				gpu := &s.GPUs[i]
				gpu.MIG = MIGMode{Current: true, Pending: true}
				instance, err := gpu.CreateInstance(id1g, 0)
				must(t, err)
				compute, err := gpu.CreateFullCompute(instance)
				must(t, err)
				must(t, gpu.AddProcess(Process{PID: 7, Name: "python", Instance: compute.UUID}))
			}
			end(t, s)
			for i, want := range []MIGMode{{}, {Current: true, Pending: true}} {
				gpu := &s.GPUs[i]
				if gpu.MIG != want || len(gpu.Instances) != 0 || len(gpu.Processes) != 0 {
					t.Errorf("%s: mode %+v, want %+v; %d instances, %d processes", gpu.Model, gpu.MIG, want, len(gpu.Instances), len(gpu.Processes))
				}
			}
		})
	}
}

func TestPendingModeComesWithTheDriver(t *testing.T) {
	s := newState(t, "a100x8", "")
	s.GPUs[3].MIG.Pending = true
	s.UnloadDriver()
	if s.Driver.Loaded {
		t.Error("the driver is loaded after unloading it")
	}
	s.LoadDriver()
	if !s.Driver.Loaded || !s.GPUs[3].MIG.Current || s.GPUs[2].MIG.Current {
		t.Errorf("after loading the driver: %+v", s)
	}
}

// TestResetLosesInstances: so says nvml.h of handles to them.
func TestResetLosesInstances(t *testing.T) {
	gpu := gpuOf(t, "h100-sxm5-80gb")
	must(t, setMode(t, gpu, true))
	_, err := gpu.CreateInstance(id1g, 0)
	must(t, err)
	must(t, gpu.Reset())
	if len(gpu.Instances) != 0 || !gpu.MIG.Current {
		t.Errorf("after a reset: %+v", gpu)
	}
}

// TestInstanceIDs has the ids and places that NVIDIA's MIG user guide shows.
func TestInstanceIDs(t *testing.T) {
	for name, test := range map[string]struct {
		model    string
		profiles []int
		want     map[int]int
	}{
		"guide: 19,14,5":   {"a100-sxm4-40gb", []int{19, 14, 5}, map[int]int{13: 6, 5: 4, 1: 0}},
		"halves":           {"h100-sxm5-80gb", []int{9, 9}, map[int]int{2: 4, 1: 0}},
		"all":              {"h200-sxm5-141gb", []int{0}, map[int]int{0: 0}},
		"four slices":      {"a30", []int{14, 5, 14}, map[int]int{6: 3, 1: 0, 5: 2}},
		"1g of two slices": {"h100-sxm5-80gb", []int{15, 15}, map[int]int{6: 6, 5: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			gpu := gpuOf(t, test.model)
			gpu.MIG.Current = true
			got := map[int]int{}
			for _, profile := range test.profiles {
				start, err := gpu.PlaceInstance(profile)
				must(t, err)
				instance, err := gpu.CreateInstance(profile, start)
				must(t, err)
				got[instance.ID] = instance.Start
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("starts by id (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInstanceRefusals(t *testing.T) {
	gpu := gpuOf(t, "h100-sxm5-80gb")
	_, err := gpu.CreateInstance(id1g, 0)
	wantResult(t, err, NotSupported)
	_, err = gpu.PlaceInstance(id1g)
	wantResult(t, err, NotSupported)
	must(t, setMode(t, gpu, true))
	instance, err := gpu.CreateInstance(id3g, 0)
	must(t, err)
	for name, test := range map[string]struct {
		profile, start int
		want           Result
	}{
		"unknown profile": {99, 0, InvalidArgument},
		"no such start":   {id3g, 1, InvalidArgument},
		"taken":           {id1g, 3, InsufficientResources},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gpu.CreateInstance(test.profile, test.start)
			wantResult(t, err, test.want)
		})
	}
	_, err = gpu.PlaceInstance(99)
	wantResult(t, err, InvalidArgument)
	_, err = gpu.PlaceInstance(0)
	wantResult(t, err, InsufficientResources)
	wantResult(t, gpu.DestroyInstance(99), NotFound)
	wantResult(t, gpu.DestroyWithCompute(99), NotFound)
	_, err = gpu.CreateCompute(instance, 3)
	wantResult(t, err, NotSupported)
	compute, err := gpu.CreateCompute(instance, 1)
	must(t, err)
	_, err = gpu.CreateCompute(instance, 1)
	wantResult(t, err, InsufficientResources)
	wantResult(t, gpu.DestroyInstance(instance.ID), InUse)
	must(t, gpu.AddProcess(Process{PID: 7, Name: "python", Instance: compute.UUID}))
	wantResult(t, gpu.DestroyCompute(instance, compute.ID), InUse)
	wantResult(t, gpu.DestroyWithCompute(instance.ID), InUse)
	wantResult(t, gpu.DestroyCompute(instance, 5), NotFound)
	if len(gpu.Instances) != 1 || len(gpu.Instances[0].Compute) != 1 {
		t.Errorf("refusals changed something: %+v", gpu.Instances)
	}
}

// TestComputeInstances divides a GPU instance, and divides it again.
func TestComputeInstances(t *testing.T) {
	gpu := gpuOf(t, "a100-sxm4-40gb")
	gpu.MIG.Current = true
	instance, err := gpu.CreateInstance(id3g, 4)
	must(t, err)
	place := func(profile int) [2]int {
		t.Helper()
		compute, err := gpu.CreateCompute(instance, profile)
		must(t, err)
		return [2]int{compute.ID, compute.Start}
	}
	got := [][2]int{place(0), place(0), place(0)}
	must(t, gpu.DestroyCompute(instance, 1))
	must(t, gpu.DestroyCompute(instance, 0))
	got = append(got, place(1))
	want := [][2]int{{0, 0}, {1, 1}, {2, 2}, {0, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ids and starts (-want +got):\n%s", diff)
	}
	if devices := gpu.MIGDevices(); len(devices) != 2 || devices[0].Compute.ID != 0 || devices[1].Compute.ID != 2 {
		t.Errorf("MIG devices %+v", devices)
	}
}

func TestProcesses(t *testing.T) {
	s := newState(t, "h100x8", "")
	gpu := &s.GPUs[0]
	must(t, gpu.AddProcess(Process{PID: 7, Name: "python"}))
	if err := gpu.AddProcess(Process{PID: 7, Name: "python"}); err == nil {
		t.Error("a process was added twice")
	}
	if err := gpu.AddProcess(Process{PID: 8, Instance: "MIG-0"}); err == nil {
		t.Error("a process was added to an instance that does not exist")
	}
	if name, ok := s.ProcessName(7); !ok || name != "python" {
		t.Errorf("process 7 is called %q, %t", name, ok)
	}
	if _, ok := s.ProcessName(8); ok {
		t.Error("process 8 has a name")
	}
	must(t, gpu.RemoveProcess(7))
	if err := gpu.RemoveProcess(7); err == nil {
		t.Error("a process was removed twice")
	}
	must(t, setMode(t, gpu, true))
	if err := gpu.AddProcess(Process{PID: 7}); err == nil {
		t.Error("a process was added to a GPU in MIG mode, beside its instances")
	}
}

func TestCountedFailures(t *testing.T) {
	gpu := gpuOf(t, "t4")
	gpu.FailTimes(QueryName, Unknown, 2)
	gpu.Fail(QueryUUID, Unknown)
	for range 2 {
		if gpu.Failures[QueryName] != Unknown {
			t.Error("the query does not fail")
		}
		gpu.Failed(QueryName)
		gpu.Failed(QueryUUID)
	}
	if diff := cmp.Diff(map[Query]Result{QueryUUID: Unknown}, gpu.Failures); diff != "" || len(gpu.FailuresLeft) != 0 {
		t.Errorf("failures left (-want +got):\n%s%v", diff, gpu.FailuresLeft)
	}
	gpu.FailTimes(QueryName, Unknown, 1)
	gpu.Fail(QueryName, Unknown)
	gpu.Failed(QueryName)
	if gpu.Failures[QueryName] != Unknown {
		t.Error("a failure until it is cleared was counted")
	}
	gpu.ClearFailures()
	if len(gpu.Failures)+len(gpu.FailuresLeft) != 0 {
		t.Errorf("failures after clearing them: %v, %v", gpu.Failures, gpu.FailuresLeft)
	}
}
