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
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/pkg/gpu"
)

func TestFindLibrary(t *testing.T) {
	for _, dir := range libraryDirs {
		t.Run(dir, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, dir, libraryName)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			// As distributions install it.
			if err := os.WriteFile(path+"9", nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(libraryName+"9", path); err != nil {
				t.Fatal(err)
			}
			found, err := findLibrary(root)
			if err != nil {
				t.Fatal(err)
			}
			if found.path != path {
				t.Errorf("got %s, want %s", found.path, path)
			}
		})
	}
}

func checkUnavailable(t *testing.T, err error, restart bool, texts ...string) {
	t.Helper()
	if !errors.Is(err, ErrDriverUnavailable) {
		t.Fatalf("error: got %v, want ErrDriverUnavailable", err)
	}
	if got := errors.Is(err, ErrRestartRequired); got != restart {
		t.Errorf("error %q: is ErrRestartRequired: got %t, want %t", err, got, restart)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

func TestDriverIsInstalledLater(t *testing.T) {
	m := newMachine(t)
	c := m.client()
	path := m.library()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err := c.Scan(t.Context())
		checkUnavailable(t, err, false, libraryName, m.root, "usr/lib/x86_64-linux-gnu", "install the driver")
	}
	m.installLibrary(t)
	m.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	_, err := c.Scan(t.Context())
	checkUnavailable(t, err, false, path, "modprobe nvidia")

	m.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	checkGPUs(t, mustScan(t, c), m.gpus())
}

func TestDriverCannotBeUsed(t *testing.T) {
	for ret, remedy := range map[nvml.Return]string{
		nvml.ERROR_LIBRARY_NOT_FOUND:       "processor",
		nvml.ERROR_DRIVER_NOT_LOADED:       "modprobe nvidia",
		nvml.ERROR_NO_PERMISSION:           "root",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "reload the module or reboot",
		nvml.ERROR_UNKNOWN:                 "dmesg",
	} {
		t.Run(ret.Error(), func(t *testing.T) {
			m := newMachine(t)
			m.InitFunc = func() nvml.Return { return ret }
			_, err := m.client().Scan(t.Context())
			checkUnavailable(t, err, false, m.root, ret.Error(), remedy)
			if !errors.Is(err, ret) {
				t.Errorf("error %v does not wrap NVML's", err)
			}
		})
	}
}

// A file that cannot be loaded may be one that is still being written.
func TestLibraryIsReadAgainUntilItLoads(t *testing.T) {
	m := newMachine(t)
	c := m.client()
	m.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	_, err := c.Scan(t.Context())
	checkUnavailable(t, err, false)
	loads := 0
	c.newNVML = func(string) nvml.Interface { loads++; return m }
	m.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	mustScan(t, c)
	c.Close()
	mustScan(t, c)
	if loads != 1 {
		t.Errorf("the library was loaded %d times after the first attempt, want once and for good", loads)
	}
}

func TestDriverIsReloaded(t *testing.T) {
	for name, fail := range map[string]func(m *machine, ret nvml.Return){
		"noticed while counting": func(m *machine, ret nvml.Return) {
			m.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, ret }
		},
		"noticed at a handle": func(m *machine, ret nvml.Return) {
			m.DeviceGetHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return nil, ret }
		},
		"noticed at a query": func(m *machine, ret nvml.Return) {
			m.device(6).GetNameFunc = func() (string, nvml.Return) { return "", ret }
		},
		"noticed at the driver's version": func(m *machine, ret nvml.Return) {
			m.SystemGetDriverVersionFunc = func() (string, nvml.Return) { return "", ret }
		},
	} {
		for _, ret := range []nvml.Return{nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH} {
			t.Run(name+" "+ret.Error(), func(t *testing.T) {
				m := newMachine(t)
				c := m.client()
				mustScan(t, c)
				want := m.gpus()
				fail(m, ret)

				// Reloaded already: one scan sets it right.
				m.InitFunc = func() nvml.Return {
					m.SetMockFuncs()
					m.limitLibrary()
					m.device(6).SetMockFuncs()
					m.complete(6)
					return nvml.SUCCESS
				}
				checkGPUs(t, mustScan(t, c), want)
				if got := len(m.ShutdownCalls()); got != 1 {
					t.Errorf("NVML was shut down %d times, want once", got)
				}

				// Unloaded for longer: later scans tell, and set it right.
				fail(m, ret)
				m.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
				for range 3 {
					_, err := c.Scan(t.Context())
					checkUnavailable(t, err, false, "modprobe nvidia")
				}
				m.SetMockFuncs()
				m.limitLibrary()
				m.device(6).SetMockFuncs()
				m.complete(6)
				checkGPUs(t, mustScan(t, c), want)
			})
		}
	}
}

// A driver that initialises and then fails is not tried for ever.
func TestDriverStaysBroken(t *testing.T) {
	m := newMachine(t)
	m.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNINITIALIZED }
	_, err := m.client().Scan(t.Context())
	checkUnavailable(t, err, false, "nvmlDeviceGetCount")
	if inits, shutdowns := len(m.InitCalls()), len(m.ShutdownCalls()); inits != 2 || shutdowns != 2 {
		t.Errorf("got %d initialisations and %d shutdowns, want 2 of each", inits, shutdowns)
	}
}

func TestDriverIsUpgraded(t *testing.T) {
	m := newMachine(t)
	c := m.client()
	mustScan(t, c)
	m.installLibrary(t)
	mustScan(t, c) // while the former version is loaded, nothing is wrong

	m.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNINITIALIZED }
	m.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	_, err := c.Scan(t.Context())
	checkUnavailable(t, err, false)
	m.InitFunc = func() nvml.Return { return nvml.ERROR_LIB_RM_VERSION_MISMATCH }
	_, err = c.Scan(t.Context())
	checkUnavailable(t, err, true, "another version")
}

func TestSessionIsKept(t *testing.T) {
	m := newMachine(t)
	c := m.client()
	for range 5 {
		mustScan(t, c)
	}
	if inits, shutdowns := len(m.InitCalls()), len(m.ShutdownCalls()); inits != 1 || shutdowns != 0 {
		t.Errorf("got %d initialisations and %d shutdowns, want 1 and 0", inits, shutdowns)
	}
	c.Close()
	c.Close()
	if got := len(m.ShutdownCalls()); got != 1 {
		t.Errorf("closing shut NVML down %d times, want once", got)
	}
}

// NVML may not see what was attached after it was initialised, nor that a lost
// GPU is back.
func TestSessionIsRenewed(t *testing.T) {
	m := newMachine(t)
	c := m.client()
	all := m.Devices
	seen := all[:7]
	m.InitFunc = func() nvml.Return { m.Devices = seen; return nvml.SUCCESS }
	const address = "bus/pci/drivers/nvidia/0000:17:00.0"
	attach := m.sysfs[address]
	delete(m.sysfs, address)
	if got := len(mustScan(t, c).GPUs); got != 7 {
		t.Fatalf("got %d GPUs, want 7", got)
	}

	m.sysfs[address], seen = attach, all
	if got := len(mustScan(t, c).GPUs); got != 8 {
		t.Errorf("after a GPU was attached: got %d GPUs, want 8", got)
	}

	name := m.device(2).GetNameFunc
	m.device(2).GetNameFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	lost := mustScan(t, c)
	checkGPUs(t, lost, append(append([]gpu.GPU{}, m.gpus()[:2]...), m.gpus()[3:]...))
	m.InitFunc = func() nvml.Return { m.device(2).GetNameFunc = name; return nvml.SUCCESS }
	checkGPUs(t, mustScan(t, c), m.gpus())

	before := len(m.InitCalls())
	mustScan(t, c)
	if got := len(m.InitCalls()); got != before {
		t.Error("NVML was initialised again although nothing had changed")
	}
}

// One card is taken out: indexes move, the other GPUs stay who they are.
func TestReenumeration(t *testing.T) {
	m := newMachine(t)
	c := m.client()
	mustScan(t, c)
	want := m.gpus()[1:]
	m.Devices = m.Devices[1:]
	delete(m.sysfs, "bus/pci/drivers/nvidia/0000:10:00.0")
	checkGPUs(t, mustScan(t, c), want)
}

func TestConcurrentUse(t *testing.T) {
	m := newMachine(t)
	c := m.client()
	want := len(m.Devices)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				inventory, err := c.Scan(t.Context())
				if err != nil || len(inventory.GPUs) != want {
					t.Errorf("got %d GPUs and error %v, want %d", len(inventory.GPUs), err, want)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
}
