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
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/yaml"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/golden"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/layout"
	"github.com/memslice/memslice/pkg/publish"
)

// TestRealLibrary loads a shared library as the driver's is loaded. Calling any
// function that it lacks would end the test's process.
func TestRealLibrary(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "usr/lib64", libraryName)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", path, "testdata/minimal.c").CombinedOutput(); err != nil {
		t.Fatalf("building the library, with the compiler that cgo needs too: %v\n%s", err, out)
	}
	c := New(Options{DriverRoot: root, SysFS: fstest.MapFS{}})
	for range 3 {
		inventory := mustScan(t, c)
		checkGPUs(t, inventory, []gpu.GPU{{UUID: "GPU-00000001-1111-4222-8333-444444444444"}})
		if len(inventory.Problems) == 0 {
			t.Error("no problems, want one for each function that is lacking")
		}
		for name, err := range operations(t.Context(), c, inventory.GPUs[0].UUID) {
			checkSays(t, err, "too old for MIG")
			if err == nil {
				t.Errorf("%s succeeded", name)
			}
		}
		c.Close()
	}
}

// What a DGX H100 publishes.
func TestPublishedGolden(t *testing.T) {
	inventory := mustScan(t, newMachine(t).client())
	var config v1alpha1.NodeConfig
	config.Default()
	devices, problems := publish.Devices(layout.Decide(layout.Input{Node: "dgx", Config: &config, GPUs: inventory.GPUs}).Offers)
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	got, err := yaml.Marshal(publish.Resources("dgx", devices))
	if err != nil {
		t.Fatal(err)
	}
	const path = "testdata/dgxh100.yaml"
	golden.Check(t, path, got)
}
