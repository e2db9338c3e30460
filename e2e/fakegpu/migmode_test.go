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

package fakegpu

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// readerVariable makes the test binary a process that lists the MIG devices of
// the first GPU, through the library that it names.
const readerVariable = "FAKEGPU_TEST_READER"

func TestMain(m *testing.M) {
	if library := os.Getenv(readerVariable); library != "" {
		if err := listMIGDevices(library); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func listMIGDevices(path string) error {
	library := nvml.New(nvml.WithLibraryPath(path))
	if result := library.Init(); result != nvml.SUCCESS {
		return result
	}
	gpu, result := library.DeviceGetHandleByIndex(0)
	if result != nvml.SUCCESS {
		return result
	}
	count, result := gpu.GetMaxMigDeviceCount()
	for index := range count {
		device, found := gpu.GetMigDeviceHandleByIndex(index)
		if found == nvml.SUCCESS {
			uuid, _ := device.GetUUID()
			fmt.Println(uuid)
		}
	}
	if result != nvml.SUCCESS {
		return result
	}
	return nil
}

// TestPartitionsOutliveProcesses has another process find what this one made.
func TestPartitionsOutliveProcesses(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver, _, gpu := migNode(t, "h100x8")
		seen := func() []string {
			reader := exec.Command(os.Args[0])
			reader.Env = append(os.Environ(), readerVariable+"="+driver.NVML())
			output, err := reader.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			return strings.Fields(string(output))
		}
		first := partitionAt(t, gpu, nvml.GPU_INSTANCE_PROFILE_1_SLICE, 3)
		second := partitionAt(t, gpu, nvml.GPU_INSTANCE_PROFILE_3_SLICE, 4)
		if diff := cmp.Diff([]string{second.uuid, first.uuid}, seen()); diff != "" {
			t.Errorf("another process sees (-want +got):\n%s", diff)
		}
		second.destroy(t)
		if diff := cmp.Diff([]string{first.uuid}, seen()); diff != "" {
			t.Errorf("another process sees after one was destroyed (-want +got):\n%s", diff)
		}
		driver.Update(t, func(s *state.State) error {
			s.UnloadDriver()
			s.LoadDriver()
			return nil
		})
		if got := seen(); len(got) != 0 {
			t.Errorf("another process sees %v after the driver was loaded anew", got)
		}
		if _, result := first.device.GetUUID(); result != nvml.ERROR_INVALID_ARGUMENT {
			t.Errorf("a handle from before the driver was loaded anew = %v", result)
		}
	})
}

// TestMIGModeThroughNVML: what each generation answers is package state's to
// know; here the answers come out as NVML's.
func TestMIGModeThroughNVML(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "mixed")
		library := load(t, driver)
		type answer struct {
			Result, Activation nvml.Return
			Current, Pending   int
		}
		set := func(index, mode int) answer {
			device := get[nvml.Device](t)(library.DeviceGetHandleByIndex(index))
			activation, result := device.SetMigMode(mode)
			current, pending, _ := device.GetMigMode()
			return answer{result, activation, current, pending}
		}
		const off, on = nvml.DEVICE_MIG_DISABLE, nvml.DEVICE_MIG_ENABLE
		busy := func(process ...state.Process) {
			driver.UpdateGPU(t, "0", func(gpu *state.GPU) { gpu.Processes = process })
		}
		busy(state.Process{PID: 7, Name: "python"})
		check := func(name string, got, want answer) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
		check("busy Hopper", set(0, on), answer{nvml.SUCCESS, nvml.ERROR_IN_USE, off, on})
		busy()
		check("idle Hopper", set(0, on), answer{nvml.SUCCESS, nvml.SUCCESS, on, on})
		p := partitionAt(t, get[nvml.Device](t)(library.DeviceGetHandleByIndex(0)), nvml.GPU_INSTANCE_PROFILE_1_SLICE, 0)
		check("Hopper with an instance", set(0, off), answer{nvml.SUCCESS, nvml.ERROR_IN_USE, on, off})
		p.destroy(t)
		check("empty Hopper", set(0, off), answer{nvml.SUCCESS, nvml.SUCCESS, off, off})
		check("Ampere", set(1, on), answer{nvml.SUCCESS, nvml.ERROR_RESET_REQUIRED, off, on})
		driver.UpdateGPU(t, "1", func(gpu *state.GPU) {
			if err := gpu.Reset(); err != nil {
				t.Error(err)
			}
		})
		check("Ampere after a reset", set(1, on), answer{nvml.SUCCESS, nvml.SUCCESS, on, on})
		check("no MIG", set(2, on), answer{Result: nvml.ERROR_NOT_SUPPORTED})
		check("no such mode", set(0, 2), answer{Result: nvml.ERROR_INVALID_ARGUMENT})
	})
}

// TestFailureThatEnds: a partition fails half-way, once.
func TestFailureThatEnds(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver, _, gpu := migNode(t, "h100x8")
		driver.UpdateGPU(t, "0", func(gpu *state.GPU) { gpu.FailTimes(state.QueryCreateComputeInstance, state.Unknown, 1) })
		profile := get[nvml.GpuInstanceProfileInfo](t)(gpu.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE))
		instance := get[nvml.GpuInstance](t)(gpu.CreateGpuInstance(&profile))
		compute := get[nvml.ComputeInstanceProfileInfo](t)(instance.GetComputeInstanceProfileInfo(0, 0))
		if _, result := instance.CreateComputeInstance(&compute); result != nvml.ERROR_UNKNOWN {
			t.Errorf("the injected failure = %v", result)
		}
		if _, result := gpu.GetMigDeviceHandleByIndex(0); result != nvml.ERROR_NOT_FOUND {
			t.Errorf("the failed call made something: %v", result)
		}
		get[nvml.ComputeInstance](t)(instance.CreateComputeInstance(&compute))
		current, err := driver.Store.Load()
		if err != nil || len(current.GPUs[0].Failures) != 0 {
			t.Errorf("failures left: %v, %v", current.GPUs[0].Failures, err)
		}
	})
}
