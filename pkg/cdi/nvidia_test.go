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

package cdi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"              //nolint:depguard // nvcdi is tested with a mock of NVML
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100" //nolint:depguard // nvcdi is tested with a mock of NVML
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"  //nolint:depguard // nvcdi is tested with a mock of NVML
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2/ktesting"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/memslice/memslice/pkg/gpu"
)

const (
	driverVersion = "550.54.15" // of the mock
	hookPath      = "/var/lib/kubelet/plugins/gpu.memslice.dev/nvidia-cdi-hook"
)

func uuidOf(i int) string { return fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i) }

// mockNVML has eight H100s.
func mockNVML() *server.Server {
	lib := dgxh100.New()
	for i, d := range lib.Devices {
		device := d.(*server.Device)
		device.UUID = uuidOf(i)
		device.IsMigDeviceHandleFunc = func() (bool, nvml.Return) { return false, nvml.SUCCESS }
	}
	return lib
}

// driverRoot is a directory with what nvcdi looks for in a driver, without
// device nodes.
func driverRoot(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	lib := filepath.Join(dir, "usr/lib/x86_64-linux-gnu")
	for _, d := range []string{lib, filepath.Join(dir, "usr/bin"), filepath.Join(dir, "dev"), filepath.Join(dir, "run/nvidia-persistenced"), filepath.Join(dir, "tmp")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, major := range map[string]string{"libcuda.so": "1", "libnvidia-ml.so": "1", "libnvidia-ptxjitcompiler.so": "1"} {
		file := filepath.Join(lib, name+"."+driverVersion)
		if err := errors.Join(os.WriteFile(file, nil, 0o755), os.Symlink(filepath.Base(file), filepath.Join(lib, name+"."+major))); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"usr/bin/nvidia-smi", "run/nvidia-persistenced/socket", "tmp/nvidia-mps"} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// addNodes makes device nodes as the driver does.
func addNodes(t testing.TB, root string, names ...string) {
	t.Helper()
	for i, name := range names {
		path := filepath.Join(root, "dev", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(195, uint32(i))))
		if errors.Is(err, unix.EPERM) {
			t.Skip("device nodes can be made by root only")
		}
		if err == nil {
			err = os.Chmod(path, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

var allNodes = []string{"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}

func newNVIDIA(t testing.TB, lib *server.Server, root, hostRoot, devRoot string) *NVIDIA {
	t.Helper()
	n, err := NewNVIDIA(NVIDIAOptions{
		DriverRoot: root, HostDriverRoot: hostRoot, DevRoot: devRoot, ProcRoot: filepath.Join(root, "proc"), HookPath: hookPath,
		NVML: func() (nvcdi.Option, error) { return nvcdi.WithNvmlLib(lib), nil },
		Minor: func(uuid string) (int, error) {
			d, ret := lib.DeviceGetHandleByUUID(uuid)
			if ret != nvml.SUCCESS {
				return 0, ret
			}
			return d.(*server.Device).Minor, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func testContext(t testing.TB) context.Context {
	_, ctx := ktesting.NewTestContext(t)
	return ctx
}

// TestNVIDIAGolden shows what is written for a claim with a share and a whole
// GPU where the driver is at /run/nvidia/driver, as the GPU Operator has it.
func TestNVIDIAGolden(t *testing.T) {
	root := driverRoot(t)
	addNodes(t, root, allNodes...)
	assignments := assign(slice("small", uuidOf(0), 4<<30, 0), gpu.Grant{Request: "large", Form: gpu.Whole, UUID: uuidOf(1), Memory: 80 << 30})
	source, err := newNVIDIA(t, mockNVML(), root, "/run/nvidia/driver", "").Spec(testContext(t), assignments)
	if err != nil {
		t.Fatal(err)
	}
	spec, _, err := build(uid, assignments, source, hook)
	if err != nil {
		t.Fatal(err)
	}
	checkSpec(t, "nvidia.json", spec)
}

// TestNVIDIARoots has the ways in which hosts have the driver and its device
// nodes.
func TestNVIDIARoots(t *testing.T) {
	for name, tc := range map[string]struct {
		hostRoot    string
		nodesInRoot bool
		wantNode    string
		wantLib     string
	}{
		"driver on the host": {
			hostRoot: "/", nodesInRoot: true,
			wantNode: "/dev/nvidia1", wantLib: "/usr/lib/x86_64-linux-gnu/libcuda.so." + driverVersion,
		},
		"driver in a container": {
			hostRoot: "/run/nvidia/driver", nodesInRoot: true,
			wantNode: "/run/nvidia/driver/dev/nvidia1", wantLib: "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so." + driverVersion,
		},
		"driver elsewhere, nodes on the host": {
			hostRoot: "/home/kubernetes/bin/nvidia",
			wantNode: "/dev/nvidia1", wantLib: "/home/kubernetes/bin/nvidia/usr/lib/x86_64-linux-gnu/libcuda.so." + driverVersion,
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, host := driverRoot(t), t.TempDir()
			if tc.nodesInRoot {
				addNodes(t, root, allNodes...)
			} else {
				addNodes(t, host, allNodes...)
			}
			spec, err := newNVIDIA(t, mockNVML(), root, tc.hostRoot, host).Spec(testContext(t), assign(slice("gpu", uuidOf(1), 1, 0)))
			if err != nil {
				t.Fatal(err)
			}
			node := spec.Devices[0].ContainerEdits.DeviceNodes[0]
			if node.Path != "/dev/nvidia1" || cmpOr(node.HostPath, node.Path) != tc.wantNode {
				t.Errorf("device node %s from %q, want it from %s", node.Path, node.HostPath, tc.wantNode)
			}
			if !slices.ContainsFunc(spec.ContainerEdits.Mounts, func(m *specs.Mount) bool {
				return m.HostPath == tc.wantLib && m.ContainerPath == "/usr/lib/x86_64-linux-gnu/libcuda.so."+driverVersion
			}) {
				t.Errorf("libcuda is not mounted from %s", tc.wantLib)
			}
			text, err := json.Marshal(spec)
			if err != nil {
				t.Fatal(err)
			}
			for _, wrong := range []string{root, host, "nvidia-mps", "nvidia-persistenced/socket", memoryLimitsHook} {
				if strings.Contains(string(text), wrong) {
					t.Errorf("%q is in the spec: %s", wrong, text)
				}
			}
			if !strings.Contains(string(text), hookPath) {
				t.Errorf("no hook runs %s: %s", hookPath, text)
			}
		})
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// TestNVIDIAMissingNodes shows that a missing device node is named, and that
// nothing of the failure is kept.
func TestNVIDIAMissingNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		missing  []string
		inRoot   bool
		wantPath []string
	}{
		"the GPU's":                       {[]string{"nvidia1"}, true, []string{"/run/nvidia/driver/dev/nvidia1"}},
		"for unified memory":              {[]string{"nvidia-uvm"}, true, []string{"/run/nvidia/driver/dev/nvidia-uvm"}},
		"two":                             {[]string{"nvidia1", "nvidia-uvm"}, true, []string{"/run/nvidia/driver/dev/nvidia1", "/run/nvidia/driver/dev/nvidia-uvm"}},
		"all, and not in the driver root": {allNodes, false, []string{"/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, host := driverRoot(t), t.TempDir()
			where := host
			if tc.inRoot {
				where = root
			}
			for _, node := range allNodes {
				if !slices.Contains(tc.missing, node) {
					addNodes(t, where, node)
				}
			}
			dir := t.TempDir()
			s, err := New(dir, newNVIDIA(t, mockNVML(), root, "/run/nvidia/driver", host), hook)
			if err != nil {
				t.Fatal(err)
			}
			assignments := assign(slice("gpu", uuidOf(1), 1, 0))
			_, err = s.Write(testContext(t), "uid-1", assignments)
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range append(tc.wantPath, uuidOf(1), "driver root /run/nvidia/driver", "nvidia-modprobe") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if exists, _ := s.Exists("uid-1"); exists {
				t.Error("there is a spec")
			}
			addNodes(t, where, tc.missing...)
			if _, err := s.Write(testContext(t), "uid-1", assignments); err != nil {
				t.Errorf("with the nodes: %v", err)
			}
		})
	}
}

func TestNVIDIARefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*server.Server, string)
		uuid   string
		want   string
	}{
		"a GPU that NVML does not know": {uuid: uuidOf(99), want: uuidOf(99)},
		"a driver root without a driver": {
			uuid: uuidOf(0), want: "--driver-root",
			change: func(_ *server.Server, root string) { os.RemoveAll(filepath.Join(root, "usr")) },
		},
		"a driver that is not loaded": {
			uuid: uuidOf(0), want: "check that the driver is loaded",
			change: func(lib *server.Server, _ string) {
				lib.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, lib := driverRoot(t), mockNVML()
			addNodes(t, root, allNodes...)
			if tc.change != nil {
				tc.change(lib, root)
			}
			_, err := newNVIDIA(t, lib, root, "/", "").Spec(testContext(t), assign(slice("gpu", tc.uuid, 1, 0)))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that says %q", err, tc.want)
			}
		})
	}
}

func TestNewNVIDIARefuses(t *testing.T) {
	good := NVIDIAOptions{DriverRoot: "/driver-root", HostDriverRoot: "/", HookPath: "/hook", NVML: func() (nvcdi.Option, error) { return nvcdi.WithNvmlLib(nil), nil }, Minor: func(string) (int, error) { return 0, nil }}
	for name, tc := range map[string]struct {
		change func(*NVIDIAOptions)
		want   string
	}{
		"all there":               {func(*NVIDIAOptions) {}, ""},
		"relative driver root":    {func(o *NVIDIAOptions) { o.DriverRoot = "driver" }, "driver root"},
		"no driver root on host":  {func(o *NVIDIAOptions) { o.HostDriverRoot = "" }, "driver root"},
		"hook to be searched for": {func(o *NVIDIAOptions) { o.HookPath = "nvidia-cdi-hook" }, "nvidia-cdi-hook"},
		"relative procfs":         {func(o *NVIDIAOptions) { o.ProcRoot = "proc" }, "procfs"},
		"no NVML":                 {func(o *NVIDIAOptions) { o.NVML = nil }, "NVML"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			tc.change(&o)
			_, err := NewNVIDIA(o)
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// BenchmarkNVIDIA is what it costs to keep nothing between two calls.
func BenchmarkNVIDIA(b *testing.B) {
	root := driverRoot(b)
	addNodes(b, root, allNodes...)
	n := newNVIDIA(b, mockNVML(), root, "/run/nvidia/driver", "")
	for b.Loop() {
		if _, err := n.Spec(b.Context(), assign(slice("gpu", uuidOf(0), 1, 0))); err != nil {
			b.Fatal(err)
		}
	}
}
