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
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// run executes one fakegpu command on a root.
func run(t *testing.T, root string, arguments ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command := newCommand()
	command.SetOut(&out)
	command.SetErr(&bytes.Buffer{})
	command.SetArgs(append(arguments, "--root", root))
	err := command.Execute()
	return out.String(), err
}

func mustRun(t *testing.T, root string, arguments ...string) string {
	t.Helper()
	out, err := run(t, root, arguments...)
	if err != nil {
		t.Fatalf("fakegpu %s: %v", strings.Join(arguments, " "), err)
	}
	return out
}

// library is a file to pass for the simulated library, which these tests do
// not load.
func library(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lib.so")
	if err := os.WriteFile(path, []byte("library"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func initRoot(t *testing.T, preset string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	mustRun(t, root, "init", "--lib", library(t), "--preset", preset)
	return root
}

func show(t *testing.T, root string) state.State {
	t.Helper()
	var s state.State
	if err := json.Unmarshal([]byte(mustRun(t, root, "state", "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestInitKeepsState(t *testing.T) {
	root := initRoot(t, "rtx4090x2")
	before := show(t, root)
	mustRun(t, root, "set", "gpu", "1", "--lost")
	mustRun(t, root, "init", "--lib", library(t), "--preset", "rtx4090x2")
	if s := show(t, root); !s.GPUs[1].Lost || s.GPUs[0].UUID != before.GPUs[0].UUID {
		t.Errorf("init changed the state: %+v", s)
	}
	mustRun(t, root, "init", "--lib", library(t), "--preset", "rtx4090x2", "--force")
	if s := show(t, root); s.GPUs[1].Lost || s.GPUs[0].UUID != before.GPUs[0].UUID {
		t.Errorf("init --force kept the state: %+v", s)
	}
}

func TestInitRenewsLibrary(t *testing.T) {
	root := initRoot(t, "t4")
	newer := filepath.Join(t.TempDir(), "newer.so")
	if err := os.WriteFile(newer, []byte("newer"), 0o644); err != nil {
		t.Fatal(err)
	}
	mustRun(t, root, "init", "--lib", newer, "--preset", "t4")
	files, err := filepath.Glob(filepath.Join(root, "usr/lib/*/libnvidia-ml.so.1"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if content, err := os.ReadFile(files[0]); err != nil || string(content) != "newer" {
		t.Errorf("library %q, %v", content, err)
	}
}

func TestForceChangesPreset(t *testing.T) {
	root := initRoot(t, "h100x8")
	mustRun(t, root, "init", "--lib", library(t), "--preset", "t4", "--force", "--gpus", "3", "--seed", "b")
	if s := show(t, root); s.Preset != "t4" || len(s.GPUs) != 3 || s.Seed != "b" {
		t.Errorf("state %+v", s)
	}
	buses, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*"))
	if err != nil || len(buses) != 3 {
		t.Errorf("PCI devices %v, %v", buses, err)
	}
}

func TestFaults(t *testing.T) {
	root := initRoot(t, "mixed")
	mustRun(t, root, "set", "gpu", "1", "--fail", "memoryInfo=UNKNOWN", "--fail", "name=NVML_ERROR_NO_PERMISSION", "--mig")
	table := mustRun(t, root, "state")
	if !strings.Contains(table, "memoryInfo=UNKNOWN,name=NO_PERMISSION") {
		t.Errorf("the table does not show the failures:\n%s", table)
	}
	s := show(t, root)
	if !s.GPUs[1].MIG.Current || s.GPUs[1].Failures[state.QueryMemoryInfo] != state.Unknown {
		t.Errorf("GPU 1 is %+v", s.GPUs[1])
	}
	mustRun(t, root, "set", "gpu", "1", "--clear", "name")
	if s := show(t, root); len(s.GPUs[1].Failures) != 1 {
		t.Errorf("failures after --clear: %v", s.GPUs[1].Failures)
	}
	mustRun(t, root, "set", "gpu", "1", "--clear-failures", "--lost", "--mig=false")
	if s := show(t, root); len(s.GPUs[1].Failures) != 0 || !s.GPUs[1].Lost || s.GPUs[1].MIG.Current {
		t.Errorf("GPU 1 is %+v", s.GPUs[1])
	}
	mustRun(t, root, "set", "gpu", "1", "--lost=false")
	if show(t, root).GPUs[1].Lost {
		t.Error("the GPU is still lost")
	}
}

func TestHardwareChanges(t *testing.T) {
	root := initRoot(t, "rtx4090x2")
	uuid := show(t, root).GPUs[0].UUID
	mustRun(t, root, "remove-gpu", "0")
	if table := mustRun(t, root, "state"); !strings.Contains(table, "removed") {
		t.Errorf("the table does not show the removal:\n%s", table)
	}
	if _, err := os.Stat(filepath.Join(root, "dev/nvidia1")); !os.IsNotExist(err) {
		t.Errorf("the second device node is still there: %v", err)
	}
	mustRun(t, root, "add-gpu", uuid)
	if _, err := os.Stat(filepath.Join(root, "dev/nvidia1")); err != nil {
		t.Error(err)
	}
	mustRun(t, root, "xid", "1", "79")
	if events := show(t, root).Events; len(events) != 1 || events[0].XID != 79 {
		t.Errorf("events %+v", events)
	}
	mustRun(t, root, "unload")
	if _, err := os.Stat(filepath.Join(root, "dev/nvidiactl")); !os.IsNotExist(err) {
		t.Errorf("a device node without a driver: %v", err)
	}
	mustRun(t, root, "load")
	if _, err := os.Stat(filepath.Join(root, "dev/nvidiactl")); err != nil {
		t.Error(err)
	}
	mustRun(t, root, "set", "library", "absent")
	if table := mustRun(t, root, "state"); !strings.Contains(table, "libnvidia-ml.so.1 ABSENT") {
		t.Errorf("the table does not show the missing library:\n%s", table)
	}
	mustRun(t, root, "destroy")
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("the root is still there: %v", err)
	}
}

// TestRefusals checks what people read when they ask for something wrong, and
// that nothing changes.
func TestRefusals(t *testing.T) {
	root := initRoot(t, "rtx4090x2")
	before := show(t, root)
	lib := library(t)
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"init without preset":   {[]string{"init", "--lib", lib}, "--preset NAME"},
		"init without library":  {[]string{"init", "--preset", "t4"}, "--lib FILE"},
		"unknown preset":        {[]string{"init", "--lib", lib, "--preset", "tpu"}, "use one of h100x8"},
		"another preset":        {[]string{"init", "--lib", lib, "--preset", "t4"}, "--force replaces it"},
		"another seed":          {[]string{"init", "--lib", lib, "--preset", "rtx4090x2", "--seed", "b"}, "--force replaces it"},
		"no GPUs":               {[]string{"init", "--lib", lib, "--preset", "t4", "--gpus", "0", "--force"}, "1 to 16"},
		"too many GPUs":         {[]string{"init", "--lib", lib, "--preset", "t4", "--gpus", "17", "--force"}, "1 to 16"},
		"missing library":       {[]string{"init", "--lib", "/nonexistent/lib.so", "--preset", "rtx4090x2"}, "/nonexistent/lib.so"},
		"unknown output":        {[]string{"state", "-o", "xml"}, "use table or json"},
		"unknown GPU":           {[]string{"set", "gpu", "2", "--lost"}, "counted from 0"},
		"nothing to set":        {[]string{"set", "gpu", "0"}, "nothing to change"},
		"failure without error": {[]string{"set", "gpu", "0", "--fail", "name"}, "QUERY=ERROR"},
		"unknown query":         {[]string{"set", "gpu", "0", "--fail", "colour=UNKNOWN"}, `unknown query "colour"`},
		"unknown error":         {[]string{"set", "gpu", "0", "--fail", "name=SAD"}, `unknown NVML error "SAD"`},
		"success as a failure":  {[]string{"set", "gpu", "0", "--fail", "name=SUCCESS"}, "--clear name"},
		"clear unknown query":   {[]string{"set", "gpu", "0", "--clear", "colour"}, `unknown query "colour"`},
		"MIG on GeForce":        {[]string{"set", "gpu", "0", "--mig"}, "has no MIG"},
		"library state":         {[]string{"set", "library", "gone"}, "gone"},
		"times that are none":   {[]string{"set", "gpu", "0", "--fail", "name=UNKNOWN*0"}, "1 or more"},
		"times as a word":       {[]string{"set", "gpu", "0", "--fail", "name=UNKNOWN*once"}, "1 or more"},
		"add a present GPU":     {[]string{"add-gpu", "0"}, "not removed"},
		"XID that is no number": {[]string{"xid", "0", "bus"}, "give a number"},
		"stray argument":        {[]string{"unload", "now"}, "now"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t, root, test.arguments...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			after, err := json.Marshal(show(t, root))
			if err != nil {
				t.Fatal(err)
			}
			if want, _ := json.Marshal(before); string(after) != string(want) {
				t.Errorf("the state changed: %s", after)
			}
		})
	}
}

func TestNoRoot(t *testing.T) {
	empty := t.TempDir()
	for name, test := range map[string]struct{ root, want string }{
		"not given":  {"", "--root DIR"},
		"none there": {empty, "fakegpu init"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t, test.root, "state"); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if _, err := run(t, test.root, "set", "gpu", "0", "--lost"); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
