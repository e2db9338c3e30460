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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/memslice/memslice/e2e/fakegpu/driverroot"
	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/kernel"
	"github.com/memslice/memslice/e2e/fakegpu/state"
	"github.com/memslice/memslice/pkg/golden"
)

// harmless are the beginnings of warnings about what a compute installation
// does not have either: graphics, daemons that do not run, a linker cache.
var harmless = []string{
	"Could not locate ",
	"Missing libnvidia-nvvm70.so",
	"Failed to load ldcache",
	"Failed to evaluate symlink",
	"failed to get custom firmware class path",
}

// TestCDIEdits has NVIDIA's own library describe a GPU of the driver root.
func TestCDIEdits(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "mixed")
		library := load(t, driver)
		uuid := get[string](t)(get[nvml.Device](t)(library.DeviceGetHandleByIndex(4)).GetUUID())
		log := &cdiLog{}
		cdi := newCDI(t, driver, library, log)

		devices, err := cdi.GetDeviceSpecsByID(uuid)
		if err != nil {
			t.Fatal(err)
		}
		common, err := cdi.GetCommonEdits()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, device := range devices {
			fmt.Fprintf(&out, "device %s\n", device.Name)
			describeEdits(&out, &device.ContainerEdits)
		}
		fmt.Fprintln(&out, "common")
		describeEdits(&out, common.ContainerEdits)
		for _, warning := range log.warnings {
			if !slices.ContainsFunc(harmless, func(prefix string) bool { return strings.HasPrefix(warning, prefix) }) {
				t.Errorf("NVIDIA's library warns: %s", warning)
			}
		}
		golden.Check(t, filepath.Join("testdata", "nvcdi.golden"), []byte(strings.ReplaceAll(out.String(), driver.Path, "{root}")))
	})
}

// TestCDIKernelSocket: NVIDIA's library gives every container with a GPU the
// simulated kernel driver's socket.
func TestCDIKernelSocket(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "h100x8-r615")
		library := load(t, driver)
		listener, err := kernel.Listen(filepath.Dir(driver.Store.Path()))
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		for _, step := range []struct {
			change func() error
			want   int // mounts
		}{
			{func() error { return nil }, 1},
			{func() error { return os.Remove(filepath.Join(filepath.Dir(driver.Store.Path()), kernel.SocketName)) }, 0},
		} {
			if err := step.change(); err != nil {
				t.Fatal(err)
			}
			driver.Update(t, func(*state.State) error { return nil })
			common, err := newCDI(t, driver, library, &cdiLog{}).GetCommonEdits()
			if err != nil {
				t.Fatal(err)
			}
			mounts := slices.DeleteFunc(common.Mounts, func(m *specs.Mount) bool { return m.ContainerPath != driverroot.KernelSocket })
			if len(mounts) != step.want || len(mounts) > 0 && mounts[0].HostPath != filepath.Join(driver.Path, driverroot.KernelSocket) {
				t.Errorf("mounts of it are %+v, want %d", mounts, step.want)
			}
		}
	})
}

// TestCDIFollowsMinor checks that the device node is the one that the GPU has
// now.
func TestCDIFollowsMinor(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "h100x8")
		library := load(t, driver)
		uuid := get[string](t)(get[nvml.Device](t)(library.DeviceGetHandleByIndex(5)).GetUUID())
		cdi := newCDI(t, driver, library, &cdiLog{})
		for _, step := range []struct {
			change func(*state.State) error
			want   string
		}{
			{func(*state.State) error { return nil }, "/dev/nvidia5"},
			{func(s *state.State) error { return s.Remove("0") }, "/dev/nvidia4"},
		} {
			driver.Update(t, step.change)
			devices, err := cdi.GetDeviceSpecsByID(uuid)
			if err != nil {
				t.Fatal(err)
			}
			nodes := devices[0].ContainerEdits.DeviceNodes
			if len(nodes) != 1 || nodes[0].Path != step.want {
				t.Errorf("device nodes %+v, want %s", nodes, step.want)
			}
		}
	})
}

// TestCDIBesideMIG: whole GPUs are described as before when another GPU is
// partitioned, and so is the partitioned GPU, whose node its partitions need.
func TestCDIBesideMIG(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver, library, gpu := migNode(t, "h100x8")
		partitionAt(t, gpu, nvml.GPU_INSTANCE_PROFILE_1_SLICE, 3)
		cdi := newCDI(t, driver, library, &cdiLog{})
		for _, index := range []int{0, 5} {
			uuid := get[string](t)(get[nvml.Device](t)(library.DeviceGetHandleByIndex(index)).GetUUID())
			devices, err := cdi.GetDeviceSpecsByID(uuid)
			if err != nil {
				t.Errorf("GPU %d: %v", index, err)
				continue
			}
			nodes := devices[0].ContainerEdits.DeviceNodes
			if want := fmt.Sprintf("/dev/nvidia%d", index); len(devices) != 1 || len(nodes) != 1 || nodes[0].Path != want {
				t.Errorf("GPU %d: device nodes %+v, want %s", index, nodes, want)
			}
		}
		if _, err := cdi.GetCommonEdits(); err != nil {
			t.Error(err)
		}
	})
}

// TestSysfs reads what Kubernetes' own helpers look for.
func TestSysfs(t *testing.T) {
	driver := fakegputest.New(t, "h100x8")
	sysfs := deviceattribute.WithFSFromRoot(filepath.Join(driver.Path, "sys"))
	root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID("0000:9d:00.0", sysfs)
	if err != nil || root.Value.StringValue == nil || *root.Value.StringValue != "pci0000:9c" {
		t.Errorf("PCIe root %+v, %v", root, err)
	}
	node, err := deviceattribute.GetNUMANodeAttributeByPCIBusID("0000:9d:00.0", deviceattribute.ScalarAttribute, sysfs)
	if err != nil || node.Value.IntValue == nil || *node.Value.IntValue != 1 {
		t.Errorf("NUMA node %+v, %v", node, err)
	}
	driver.Update(t, func(s *state.State) error { return s.Remove("0000:9d:00.0") })
	if _, err := deviceattribute.GetPCIeRootAttributeByPCIBusID("0000:9d:00.0", sysfs); err == nil {
		t.Error("a removed GPU is still on the bus")
	}
}

func newCDI(t *testing.T, driver *fakegputest.Driver, library nvml.Interface, log *cdiLog) nvcdi.Interface {
	t.Helper()
	cdi, err := nvcdi.New(
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithNvmlLib(library),
		nvcdi.WithDriverRoot(driver.Path),
		nvcdi.WithDevRoot(driver.Path),
		nvcdi.WithNVIDIACDIHookPath("/opt/nvidia-cdi-hook"),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
		nvcdi.WithLogger(log),
	)
	if err != nil {
		t.Fatal(err)
	}
	return cdi
}

func describeEdits(out *strings.Builder, edits *specs.ContainerEdits) {
	var lines []string
	for _, variable := range edits.Env {
		lines = append(lines, "  env "+variable)
	}
	for _, node := range edits.DeviceNodes {
		lines = append(lines, fmt.Sprintf("  node %s from %s", node.Path, node.HostPath))
	}
	for _, mount := range edits.Mounts {
		lines = append(lines, fmt.Sprintf("  mount %s from %s", mount.ContainerPath, mount.HostPath))
	}
	for _, hook := range edits.Hooks {
		lines = append(lines, fmt.Sprintf("  hook %s %s", hook.HookName, strings.Join(hook.Args, " ")))
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
}

// cdiLog keeps what NVIDIA's library warns of.
type cdiLog struct {
	mu       sync.Mutex
	warnings []string
}

func (l *cdiLog) warn(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warnings = append(l.warnings, text)
}

func (l *cdiLog) Debugf(string, ...any) {}
func (l *cdiLog) Errorf(format string, args ...any) {
	l.warn("error: " + fmt.Sprintf(format, args...))
}
func (l *cdiLog) Infof(string, ...any)                {}
func (l *cdiLog) Warning(args ...any)                 { l.warn(fmt.Sprint(args...)) }
func (l *cdiLog) Warningf(format string, args ...any) { l.warn(fmt.Sprintf(format, args...)) }
func (l *cdiLog) Tracef(string, ...any)               {}
