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
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// TestRepeatedInit checks that loading and unloading leaves nothing behind.
func TestRepeatedInit(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "h100x8")
		once := func() {
			library := nvml.New(nvml.WithLibraryPath(driver.NVML()))
			must(t, library.Init())
			for index := range get[int](t)(library.DeviceGetCount()) {
				get[string](t)(get[nvml.Device](t)(library.DeviceGetHandleByIndex(index)).GetUUID())
			}
			must(t, library.Shutdown())
		}
		once()
		threads, files := count(t, "/proc/self/task"), count(t, "/proc/self/fd")
		for range 300 {
			once()
		}
		// Both runtimes may start a few threads more as they please.
		if now := count(t, "/proc/self/task"); now > threads+8 {
			t.Errorf("%d threads after 300 rounds, %d before", now, threads)
		}
		if now := count(t, "/proc/self/fd"); now > files+2 {
			t.Errorf("%d open files after 300 rounds, %d before", now, files)
		}
	})
}

func count(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestInitCounts checks that NVML stays usable until the last user leaves.
func TestInitCounts(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "t4")
		library := load(t, driver)
		second := nvml.New(nvml.WithLibraryPath(driver.NVML()))
		must(t, second.Init())
		must(t, second.Shutdown())
		get[int](t)(library.DeviceGetCount())
		if got := second.Shutdown(); got != nvml.ERROR_UNINITIALIZED {
			t.Errorf("Shutdown without Init = %v", got)
		}
	})
}

// TestParallelCalls asks from many threads while the state changes under
// them: every answer is one that some state gives.
func TestParallelCalls(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "h100x8")
		library := load(t, driver)
		var done atomic.Bool
		var group sync.WaitGroup
		for worker := range 8 {
			group.Go(func() {
				for !done.Load() {
					query(t, library, worker)
				}
			})
		}
		for round := range 40 {
			name := strconv.Itoa(round % 8)
			driver.UpdateGPU(t, name, func(gpu *state.GPU) { gpu.Fail(state.QueryMemoryInfo, state.Unknown) })
			driver.UpdateGPU(t, name, func(gpu *state.GPU) { gpu.Failures = nil })
		}
		done.Store(true)
		group.Wait()
	})
}

func query(t *testing.T, library nvml.Interface, index int) {
	device, result := library.DeviceGetHandleByIndex(index)
	if result != nvml.SUCCESS {
		t.Errorf("handle of GPU %d: %v", index, result)
		return
	}
	memory, result := device.GetMemoryInfo_v2()
	switch {
	case result == nvml.ERROR_UNKNOWN:
	case result != nvml.SUCCESS:
		t.Errorf("memory of GPU %d: %v", index, result)
	case memory.Total != 81559<<20 || memory.Free+memory.Reserved+memory.Used != memory.Total:
		t.Errorf("memory of GPU %d: %+v", index, memory)
	}
}

// TestHostRuntime checks that the Go program which loads the library keeps
// what its own runtime needs signals for.
func TestHostRuntime(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		library := load(t, fakegputest.New(t, "t4"))
		device := get[nvml.Device](t)(library.DeviceGetHandleByIndex(0))

		t.Run("recovers from nil dereference", func(t *testing.T) {
			for range 10 {
				get[string](t)(device.GetName())
				if recovered := dereferenceNil(); recovered == nil {
					t.Error("a nil dereference did not panic")
				}
			}
		})
		t.Run("preempts goroutines", func(t *testing.T) {
			// A collection waits for every goroutine; one that makes no calls
			// stops only for a signal.
			var stop atomic.Bool
			var spinning sync.WaitGroup
			for range 2 {
				spinning.Go(func() {
					for !stop.Load() {
					}
				})
			}
			for range 5 {
				runtime.GC()
			}
			stop.Store(true)
			spinning.Wait()
		})
	})
}

func dereferenceNil() (recovered any) {
	defer func() { recovered = recover() }()
	var nothing *state.State
	return nothing.Version
}
