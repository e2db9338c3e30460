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

package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// anyDirectory lets limits on a root be for any directory.
func anyDirectory(t *testing.T, root string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, "var/lib/fakegpu", state.AnyDirectory), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func listLimits(t *testing.T, root string) []gpuLimit {
	t.Helper()
	var all []gpuLimit
	if err := json.Unmarshal([]byte(mustRun(t, root, "limit", "list", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLimits(t *testing.T) {
	root := initRoot(t, "h100x8-r615")
	anyDirectory(t, root)
	if out := mustRun(t, root, "limit", "list", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("without a limit: %s", out)
	}
	one, other := t.TempDir(), t.TempDir()
	mustRun(t, root, "limit", "set", "--gpu", "1", "--cgroup", one, "--memory", "8Gi")
	mustRun(t, root, "limit", "set", "--gpu", "1", "--cgroup", one, "--memory", "4Gi", "--guarantee", "1Gi")
	mustRun(t, root, "limit", "set", "--gpu", "1", "--cgroup", other, "--memory", "2Gi")
	mustRun(t, root, "limit", "set", "--gpu", "0", "--cgroup", other, "--memory", "3Gi")
	all := listLimits(t, root)
	if len(all) != 3 {
		t.Fatalf("limits are %+v", all)
	}
	const gi = 1 << 30
	got := all[1]
	if got.GPU != 1 || got.GPUUUID != show(t, root).GPUs[1].UUID || got.Cgroup.Path != one || got.Cgroup.Inode == 0 || got.Hard != 4*gi || got.Soft != gi {
		t.Errorf("the limit is %+v", got)
	}
	if table := mustRun(t, root, "limit", "list"); !strings.Contains(table, "4Gi    1Gi        0     "+one) {
		t.Errorf("the table is\n%s", table)
	}
	mustRun(t, root, "limit", "clear", "--gpu", "1", "--cgroup", one)
	if all := listLimits(t, root); len(all) != 2 || all[0].GPU != 0 || all[1].Cgroup.Path != other {
		t.Errorf("after one was cleared: %+v", all)
	}
	mustRun(t, root, "limit", "clear", "--gpu", "1", "--all")
	if all := listLimits(t, root); len(all) != 1 || all[0].GPU != 0 {
		t.Errorf("after those of a GPU were cleared: %+v", all)
	}
	mustRun(t, root, "limit", "clear", "--gpu", "1", "--all") // there is none, which is what was asked for
}

func TestPrintLimits(t *testing.T) {
	var out strings.Builder
	err := printLimits(&out, []gpuLimit{
		{GPU: 2, Used: 5 << 20, Limit: state.Limit{Cgroup: state.Cgroup{Path: "/pod"}, Soft: 1 << 30, Hard: math.MaxUint64}},
	})
	if want := "GPU  LIMIT  GUARANTEE  USED  CGROUP\n2    none   1Gi        5Mi   /pod\n"; err != nil || out.String() != want {
		t.Errorf("%v, the table is\n%s", err, out.String())
	}
}

func TestLimitRefusals(t *testing.T) {
	root, plain := initRoot(t, "rtx4090x2"), initRoot(t, "rtx4090x2")
	anyDirectory(t, root)
	dir := t.TempDir()
	for name, test := range map[string]struct {
		root      string
		arguments []string
		want      string
	}{
		"set without cgroup":     {root, []string{"set", "--gpu", "0", "--memory", "1Gi"}, "--cgroup PATH"},
		"set without memory":     {root, []string{"set", "--gpu", "0", "--cgroup", dir}, "--memory QUANTITY"},
		"set without GPU":        {root, []string{"set", "--cgroup", dir, "--memory", "1Gi"}, "no GPU: give --gpu"},
		"memory that is none":    {root, []string{"set", "--gpu", "0", "--cgroup", dir, "--memory", "much"}, "write a quantity"},
		"negative memory":        {root, []string{"set", "--gpu", "0", "--cgroup", dir, "--memory", "-1Gi"}, "write a quantity"},
		"guarantee that is none": {root, []string{"set", "--gpu", "0", "--cgroup", dir, "--memory", "1Gi", "--guarantee", "all"}, "--guarantee"},
		"more than the GPU has":  {root, []string{"set", "--gpu", "0", "--cgroup", dir, "--memory", "25Gi"}, "not possible"},
		"guarantee above limit":  {root, []string{"set", "--gpu", "0", "--cgroup", dir, "--memory", "1Gi", "--guarantee", "2Gi"}, "not possible"},
		"no such cgroup":         {root, []string{"set", "--gpu", "0", "--cgroup", dir + "/gone", "--memory", "1Gi"}, "no such file"},
		"a directory, no cgroup": {plain, []string{"set", "--gpu", "0", "--cgroup", dir, "--memory", "1Gi"}, "no cgroup file system"},
		"clear without which":    {root, []string{"clear", "--gpu", "0"}, "--cgroup PATH for that of one cgroup, or --all"},
		"clear both":             {root, []string{"clear", "--gpu", "0", "--all", "--cgroup", dir}, "--cgroup PATH for that of one cgroup, or --all"},
		"clear one that is not":  {root, []string{"clear", "--gpu", "0", "--cgroup", dir}, "fakegpu limit list"},
		"list in another format": {root, []string{"list", "-o", "xml"}, "use table or json"},
		"unknown GPU":            {root, []string{"clear", "--gpu", "7", "--all"}, "counted from 0"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t, test.root, append([]string{"limit"}, test.arguments...)...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if all := listLimits(t, test.root); len(all) != 0 {
				t.Errorf("limits are %+v", all)
			}
		})
	}
}

// The library that fits the driver is taken from a folder.
func TestInitPicksLibrary(t *testing.T) {
	dir := t.TempDir()
	for _, generation := range []string{"r580", "r615"} {
		if err := os.WriteFile(filepath.Join(dir, "libnvidia-ml-"+generation+".so"), []byte(generation), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(t.TempDir(), "root")
	for preset, want := range map[string]string{"h100x8": "r580", "h100x8-r580": "r580", "h100x8-r615": "r615", "t4": "r580"} {
		mustRun(t, root, "init", "--lib", dir, "--preset", preset, "--force")
		files, err := filepath.Glob(filepath.Join(root, "usr/lib/*/libnvidia-ml.so.1"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v", files, err)
		}
		if got, err := os.ReadFile(files[0]); err != nil || string(got) != want {
			t.Errorf("%s has the library %q, %v, want %s", preset, got, err, want)
		}
	}
	if err := os.Remove(filepath.Join(dir, "libnvidia-ml-r615.so")); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, root, "init", "--lib", dir, "--preset", "h100x8-r615", "--force"); err == nil || !strings.Contains(err.Error(), "libnvidia-ml-r615.so") {
		t.Errorf("without the library: %v", err)
	}
}
