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

package cdi_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2/ktesting"
	cncf "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/pkg/cdi"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/nvidia"
)

// TestInstancesOfDriver makes instances on the simulated driver and looks at
// them from within a container.
func TestInstancesOfDriver(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		driver := fakegputest.New(t, "h100x8")
		client := nvidia.New(nvidia.Options{DriverRoot: driver.Path, SysFS: os.DirFS(filepath.Join(driver.Path, "sys")).(fs.ReadLinkFS)})
		t.Cleanup(client.Close)
		inventory, err := client.Scan(ctx)
		if err != nil {
			t.Fatal(err)
		}
		uuid := inventory.GPUs[3].UUID
		if err := client.SetMIGMode(ctx, uuid, true); err != nil {
			t.Fatal(err)
		}
		var assignments []gpu.Assignment
		for _, place := range []gpu.Partition{{Profile: "1g.10gb", Start: 0, Size: 1}, {Profile: "2g.20gb", Start: 2, Size: 2}} {
			instance, err := client.CreateInstance(ctx, uuid, place)
			if err != nil {
				t.Fatal(err)
			}
			assignments = append(assignments, gpu.Assignment{Instance: instance,
				Grant: gpu.Grant{Request: "gpu", Form: gpu.MIG, UUID: uuid, Partition: place, Memory: instance.Memory}})
		}

		source, err := cdi.NewNVIDIA(cdi.NVIDIAOptions{
			DriverRoot: driver.Path, HostDriverRoot: driver.Path, ProcRoot: filepath.Join(driver.Path, "proc"),
			HookPath: "/opt/nvidia-cdi-hook", NVML: client.CDIOption, Minor: client.Minor,
		})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		specs, err := cdi.New(dir, source, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := specs.Write(ctx, "claim", assignments)
		if err != nil {
			t.Fatal(err)
		}
		nodes := injected(t, dir, ids)
		if !slices.Contains(nodes, "/dev/nvidia3") || slices.Contains(nodes, "/dev/nvidia0") {
			t.Errorf("device nodes %q, want that of GPU 3", nodes)
		}
		capabilities := slices.DeleteFunc(nodes, func(path string) bool { return !strings.HasPrefix(path, "/dev/nvidia-caps/") })
		slices.Sort(capabilities)
		if len(slices.Compact(slices.Clone(capabilities))) != 4 {
			t.Fatalf("device nodes of capabilities %q, want two for each instance", capabilities)
		}

		// One that is missing is named, and so is its instance.
		if err := os.Remove(filepath.Join(driver.Path, capabilities[0])); err != nil {
			t.Fatal(err)
		}
		_, err = specs.Write(ctx, types.UID("another"), assignments)
		if err == nil || !strings.Contains(err.Error(), filepath.Join(driver.Path, capabilities[0])) || !strings.Contains(err.Error(), "MIG-") {
			t.Errorf("error %v, want one that names %s", err, capabilities[0])
		}
	})
}

// injected is the device nodes in a container with these devices.
func injected(t *testing.T, dir string, ids []string) (paths []string) {
	t.Helper()
	cache, err := cncf.NewCache(cncf.WithSpecDirs(dir), cncf.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	var container oci.Spec
	if _, err := cache.InjectDevices(&container, ids...); err != nil {
		t.Fatal(err)
	}
	for _, device := range container.Linux.Devices {
		paths = append(paths, device.Path)
	}
	return paths
}
