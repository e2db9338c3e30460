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
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// busyInstance is the GPU instance of a 1g at the first memory slice, in which
// the test has a process, so that no call that succeeds changes anything.
const busyInstance = 7

func occupy(gpu *state.GPU) error {
	gpu.MIG = state.MIGMode{Current: true, Pending: true}
	instance, err := gpu.CreateInstance(19, 0)
	if err != nil {
		return err
	}
	compute, err := gpu.CreateFullCompute(instance)
	if err != nil {
		return err
	}
	return gpu.AddProcess(state.Process{PID: 7, Name: "python", Instance: compute.UUID})
}

// TestEveryQueryCanFail injects a failure into each query of a GPU while the
// library is in use, and takes it away again.
func TestEveryQueryCanFail(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "h100x8-r615") // of all generations the one with most queries
		library := load(t, driver)
		driver.Update(t, func(s *state.State) error { return errors.Join(occupy(&s.GPUs[2]), occupy(&s.GPUs[3])) })
		device := get[nvml.Device](t)(library.DeviceGetHandleByIndex(2))
		other := get[nvml.Device](t)(library.DeviceGetHandleByIndex(3))
		uuid, otherUUID := get[string](t)(device.GetUUID()), get[string](t)(other.GetUUID())
		for _, query := range state.Queries() {
			call, ok := asked[query]
			if !ok {
				t.Errorf("no test asks %s", query)
				continue
			}
			before, otherBefore := call(library, device, uuid), call(library, other, otherUUID)
			if before == nvml.ERROR_CORRUPTED_INFOROM {
				t.Errorf("%s fails with the injected error before the injection", query)
			}
			driver.UpdateGPU(t, uuid, func(gpu *state.GPU) { gpu.Fail(query, state.Result(nvml.ERROR_CORRUPTED_INFOROM)) })
			if got := call(library, device, uuid); got != nvml.ERROR_CORRUPTED_INFOROM {
				t.Errorf("%s = %v with a failure injected", query, got)
			}
			if got := call(library, other, otherUUID); got != otherBefore {
				t.Errorf("%s of another GPU = %v, want %v", query, got, otherBefore)
			}
			driver.UpdateGPU(t, uuid, func(gpu *state.GPU) { gpu.Failures = nil })
			if got := call(library, device, uuid); got != before {
				t.Errorf("%s = %v after the failure was cleared, want %v", query, got, before)
			}
		}
	})
}

func TestLostGPU(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "rtx4090x2")
		library := load(t, driver)
		device := get[nvml.Device](t)(library.DeviceGetHandleByIndex(0))
		driver.UpdateGPU(t, "0", func(gpu *state.GPU) { gpu.Lost = true })
		if got := get[int](t)(library.DeviceGetCount()); got != 2 {
			t.Errorf("a lost GPU left the enumeration: count %d", got)
		}
		if _, result := device.GetName(); result != nvml.ERROR_GPU_IS_LOST {
			t.Errorf("GetName of a lost GPU = %v", result)
		}
		if _, result := library.DeviceGetHandleByIndex(0); result != nvml.ERROR_GPU_IS_LOST {
			t.Errorf("the handle of a lost GPU = %v", result)
		}
		get[nvml.Device](t)(library.DeviceGetHandleByIndex(1))
		driver.UpdateGPU(t, "0", func(gpu *state.GPU) { gpu.Lost = false })
		get[string](t)(device.GetName())
	})
}

// TestRemovedGPU checks that what counts GPUs moves and handles stay.
func TestRemovedGPU(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "h100x8")
		library := load(t, driver)
		first := get[nvml.Device](t)(library.DeviceGetHandleByIndex(0))
		uuid := get[string](t)(first.GetUUID())
		second := get[nvml.Device](t)(library.DeviceGetHandleByIndex(1))
		secondUUID := get[string](t)(second.GetUUID())

		driver.Update(t, func(s *state.State) error { return s.Remove(uuid) })
		if got := get[int](t)(library.DeviceGetCount()); got != 7 {
			t.Errorf("count = %d with one of eight removed", got)
		}
		if _, result := first.GetName(); result != nvml.ERROR_GPU_IS_LOST {
			t.Errorf("GetName of a removed GPU = %v", result)
		}
		if _, result := library.DeviceGetHandleByUUID(uuid); result != nvml.ERROR_NOT_FOUND {
			t.Errorf("the handle of a removed GPU = %v", result)
		}
		if got := get[string](t)(second.GetUUID()); got != secondUUID {
			t.Errorf("the second GPU's handle now means %s, not %s", got, secondUUID)
		}
		if index, minor := get[int](t)(second.GetIndex()), get[int](t)(second.GetMinorNumber()); index != 0 || minor != 0 {
			t.Errorf("the second GPU has index %d and minor %d after the first went, want 0 and 0", index, minor)
		}

		driver.Update(t, func(s *state.State) error { return s.Add(uuid) })
		if index := get[int](t)(second.GetIndex()); index != 1 {
			t.Errorf("the second GPU has index %d after the first came back", index)
		}
		get[string](t)(first.GetName())
	})
}

func TestDriverUnloaded(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "t4")
		library := nvml.New(nvml.WithLibraryPath(driver.NVML()))
		driver.Update(t, func(s *state.State) error {
			s.UnloadDriver()
			return nil
		})
		if got := library.Init(); got != nvml.ERROR_DRIVER_NOT_LOADED {
			t.Errorf("Init without a driver = %v", got)
		}
		driver.Update(t, func(s *state.State) error {
			s.LoadDriver()
			return nil
		})
		must(t, library.Init())
		device := get[nvml.Device](t)(library.DeviceGetHandleByIndex(0))
		driver.Update(t, func(s *state.State) error {
			s.UnloadDriver()
			return nil
		})
		if _, result := device.GetName(); result != nvml.ERROR_DRIVER_NOT_LOADED {
			t.Errorf("GetName after the driver went = %v", result)
		}
		must(t, library.Shutdown())
	})
}

func TestNoState(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		library := nvml.New(nvml.WithLibraryPath(fakegputest.Library(t)))
		if got := library.Init(); got != nvml.ERROR_DRIVER_NOT_LOADED {
			t.Errorf("Init of a library outside any driver root = %v", got)
		}
	})
}

func TestLibraryAbsent(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "t4")
		setAbsent := func(absent bool) {
			driver.Update(t, func(s *state.State) error {
				s.Driver.LibraryAbsent = absent
				return nil
			})
		}
		setAbsent(true)
		library := nvml.New(nvml.WithLibraryPath(driver.NVML()))
		if got := library.Init(); got != nvml.ERROR_LIBRARY_NOT_FOUND {
			t.Errorf("Init without a library = %v", got)
		}
		setAbsent(false)
		must(t, library.Init())
		must(t, library.Shutdown())
	})
}

// TestMovedRoot loads the library from paths that the root was not made at,
// as containers do.
func TestMovedRoot(t *testing.T) {
	for name, move := range map[string]func(t *testing.T, from, to string) error{
		"renamed": func(_ *testing.T, from, to string) error { return os.Rename(from, to) },
		"linked":  func(_ *testing.T, from, to string) error { return os.Symlink(from, to) },
	} {
		t.Run(name, func(t *testing.T) {
			fakegputest.Isolate(t, func(t *testing.T) {
				driver := fakegputest.New(t, "t4")
				elsewhere := filepath.Join(t.TempDir(), "mnt")
				inside, err := filepath.Rel(driver.Path, driver.NVML())
				if err != nil {
					t.Fatal(err)
				}
				if err := move(t, driver.Path, elsewhere); err != nil {
					t.Fatal(err)
				}
				library := nvml.New(nvml.WithLibraryPath(filepath.Join(elsewhere, inside)))
				must(t, library.Init())
				if got := get[int](t)(library.DeviceGetCount()); got != 1 {
					t.Errorf("count = %d", got)
				}
				must(t, library.Shutdown())
			})
		})
	}
}

// TestResultsAreNVMLs compares the names that state files use with go-nvml's.
func TestResultsAreNVMLs(t *testing.T) {
	for _, result := range []nvml.Return{
		nvml.ERROR_UNINITIALIZED, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION,
		nvml.ERROR_NOT_FOUND, nvml.ERROR_INSUFFICIENT_SIZE, nvml.ERROR_INSUFFICIENT_POWER, nvml.ERROR_DRIVER_NOT_LOADED,
		nvml.ERROR_TIMEOUT, nvml.ERROR_IRQ_ISSUE, nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_FUNCTION_NOT_FOUND,
		nvml.ERROR_CORRUPTED_INFOROM, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_OPERATING_SYSTEM,
		nvml.ERROR_LIB_RM_VERSION_MISMATCH, nvml.ERROR_IN_USE, nvml.ERROR_MEMORY, nvml.ERROR_NO_DATA,
		nvml.ERROR_INSUFFICIENT_RESOURCES, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_NOT_READY,
		nvml.ERROR_GPU_NOT_FOUND, nvml.ERROR_INVALID_STATE, nvml.ERROR_UNKNOWN,
	} {
		// Without a library, go-nvml's own text is the constant's name.
		name := result.Error()
		parsed, err := state.ParseResult(name)
		if err != nil || parsed != state.Result(result) {
			t.Errorf("ParseResult(%q) = %d, %v, want %d", name, parsed, err, result)
		}
	}
}

// TestNoMemoryLimits: drivers of this generation lack the symbols, and
// programs look them up to find out.
func TestNoMemoryLimits(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		library := load(t, fakegputest.New(t, "t4"))
		present := []string{"nvmlInit_v2", "nvmlDeviceGetMemoryInfo_v2"}
		for _, symbol := range []string{
			"nvmlInit_v2", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1",
		} {
			err := library.Extensions().LookupSymbol(symbol)
			if want := slices.Contains(present, symbol); (err == nil) != want {
				t.Errorf("symbol %s: present %t, want %t: %v", symbol, err == nil, want, err)
			}
		}
	})
}
