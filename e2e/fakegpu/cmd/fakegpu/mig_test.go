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
	"strings"
	"testing"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// instances is what 'fakegpu mig list' says.
func instances(t *testing.T, root string) []migInstance {
	t.Helper()
	var all []migInstance
	if err := json.Unmarshal([]byte(mustRun(t, root, "mig", "list", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestMIGCommands partitions an H100 as an administrator does.
func TestMIGCommands(t *testing.T) {
	root := initRoot(t, "h100x8")
	mustRun(t, root, "mig", "enable", "--gpu", "1")
	made := mustRun(t, root, "mig", "create", "--gpu", "1", "--profile", "1g.10gb", "--start", "3")
	mustRun(t, root, "mig", "create", "--gpu", "1", "--profile", "3g.40gb")
	mustRun(t, root, "mig", "create", "--gpu", "1", "--profile", "1g.10gb+me", "--no-compute")
	all := instances(t, root)
	if len(all) != 3 {
		t.Fatalf("instances %+v", all)
	}
	large, empty, small := all[0], all[1], all[2]
	if large.GPU != 1 || large.GPUInstance != 2 || large.Profile != "3g.40gb" || large.Start != 4 || large.Size != 4 || large.UUID == "" {
		t.Errorf("the driver placed %+v", large)
	}
	if small.Start != 3 || made != "GPU instance 10: "+small.UUID+"\n" {
		t.Errorf("create says %q of %+v", made, small)
	}
	if empty.Profile != "1g.10gb+me" || empty.UUID != "" || empty.ComputeInstance != nil {
		t.Errorf("an instance without compute instance: %+v", empty)
	}
	for command, want := range map[string]string{"mig list": large.UUID, "state": "on, instances: 3"} {
		if table := mustRun(t, root, strings.Fields(command)...); !strings.Contains(table, want) {
			t.Errorf("%s does not show %q:\n%s", command, want, table)
		}
	}

	mustRun(t, root, "process", "add", "--gpu", "1", "--instance", small.UUID, "--pid", "4711", "--name", "python", "--memory", "1Gi")
	if p := instances(t, root)[2].Processes; len(p) != 1 || p[0].Name != "python" || p[0].MemoryBytes != 1<<30 {
		t.Errorf("processes %+v", p)
	}
	for _, command := range []string{"mig list", "process list"} {
		if table := mustRun(t, root, strings.Fields(command)...); !strings.Contains(table, "4711") {
			t.Errorf("%s does not show the process:\n%s", command, table)
		}
	}
	if _, err := run(t, root, "mig", "destroy", "--gpu", "1", "--instance", "all"); err == nil || !strings.Contains(err.Error(), "process 4711 (python)") {
		t.Errorf("destroying an instance in use: %v", err)
	}
	if got := instances(t, root); len(got) != 3 {
		t.Errorf("a refused destroy left %+v", got)
	}
	mustRun(t, root, "process", "remove", "--gpu", "1", "--pid", "4711")
	mustRun(t, root, "mig", "destroy", "--gpu", "1", "--instance", "10")
	if _, err := run(t, root, "mig", "disable", "--gpu", "1"); err == nil || !strings.Contains(err.Error(), "2 GPU instances") {
		t.Errorf("turning the mode off with instances: %v", err)
	}
	mustRun(t, root, "mig", "destroy", "--gpu", "1", "--instance", "all")
	mustRun(t, root, "mig", "disable", "--gpu", "1")
	if s := show(t, root); s.GPUs[1].MIG.Current || len(s.GPUs[1].Instances) != 0 {
		t.Errorf("GPU 1 is %+v", s.GPUs[1])
	}
}

func TestMIGNeedsReset(t *testing.T) {
	root := initRoot(t, "a100x8")
	if out := mustRun(t, root, "mig", "enable", "--gpu", "0"); !strings.Contains(out, "fakegpu reset") {
		t.Errorf("enable says %q", out)
	}
	if table := mustRun(t, root, "state"); !strings.Contains(table, "off (pending on)") {
		t.Errorf("the table does not show the pending mode:\n%s", table)
	}
	mustRun(t, root, "process", "add", "--gpu", "0", "--pid", "1", "--name", "python")
	if _, err := run(t, root, "reset", "--gpu", "0"); err == nil || !strings.Contains(err.Error(), "process 1 (python)") {
		t.Errorf("resetting a GPU in use: %v", err)
	}
	mustRun(t, root, "process", "remove", "--gpu", "0", "--pid", "1")
	mustRun(t, root, "reset", "--gpu", "0")
	if !show(t, root).GPUs[0].MIG.Current {
		t.Error("the mode is off after the reset")
	}
}

func TestCountedFailure(t *testing.T) {
	root := initRoot(t, "h100x8")
	mustRun(t, root, "set", "gpu", "1", "--fail", "createGpuInstance=UNKNOWN*2")
	if gpu := show(t, root).GPUs[1]; gpu.Failures[state.QueryCreateGPUInstance] != state.Unknown || gpu.FailuresLeft[state.QueryCreateGPUInstance] != 2 {
		t.Errorf("failures %v, left %v", gpu.Failures, gpu.FailuresLeft)
	}
	if table := mustRun(t, root, "state"); !strings.Contains(table, "createGpuInstance=UNKNOWN*2") {
		t.Errorf("the table does not show the count:\n%s", table)
	}
	mustRun(t, root, "set", "gpu", "1", "--clear", "createGpuInstance")
	if gpu := show(t, root).GPUs[1]; len(gpu.Failures)+len(gpu.FailuresLeft) != 0 {
		t.Errorf("failures after --clear: %v, %v", gpu.Failures, gpu.FailuresLeft)
	}
}

// TestMIGRefusals checks what people read, and that nothing changes.
func TestMIGRefusals(t *testing.T) {
	root := initRoot(t, "mixed")
	mustRun(t, root, "mig", "enable", "--gpu", "0")
	mustRun(t, root, "mig", "create", "--gpu", "0", "--profile", "3g.40gb", "--start", "0")
	mustRun(t, root, "process", "add", "--gpu", "2", "--pid", "1", "--name", "python")
	mustRun(t, root, "process", "add", "--gpu", "1", "--pid", "2", "--name", "python")
	mustRun(t, root, "remove-gpu", "5")
	before := mustRun(t, root, "state", "-o", "json")
	removed := show(t, root).GPUs[5].UUID
	for name, test := range map[string]struct{ command, want string }{
		"no GPU":               {"mig enable", "give --gpu"},
		"unknown GPU":          {"mig enable --gpu 9", "no GPU has index 9"},
		"removed GPU":          {"mig enable --gpu " + removed, "fakegpu add-gpu"},
		"no MIG":               {"mig enable --gpu 2", "has no MIG"},
		"enable in use":        {"mig enable --gpu 1", "process 2 (python)"},
		"mode off":             {"mig create --gpu 1 --profile 1g.5gb", "fakegpu mig enable"},
		"create without MIG":   {"mig create --gpu 2 --profile 1g.5gb", "has no MIG"},
		"no profile":           {"mig create --gpu 0", `no profile "": use one of 1g.10gb`},
		"unknown profile":      {"mig create --gpu 0 --profile 1g.5gb", `no profile "1g.5gb": use one of 1g.10gb`},
		"no such start":        {"mig create --gpu 0 --profile 3g.40gb --start 2", "at 0, 4"},
		"taken":                {"mig create --gpu 0 --profile 1g.10gb --start 3", "beside 3g.40gb at 0"},
		"no room":              {"mig create --gpu 0 --profile 7g.80gb", "beside 3g.40gb at 0"},
		"no instance":          {"mig destroy --gpu 0", "or all"},
		"unknown instance":     {"mig destroy --gpu 0 --instance 5", "no GPU instance 5"},
		"set mode off":         {"set gpu 0 --mig=false", "fakegpu mig destroy"},
		"list as text":         {"mig list -o xml", "use table or json"},
		"reset in use":         {"reset --gpu 1", "process 2 (python)"},
		"process without pid":  {"process add --gpu 3 --name python", "--pid NUMBER"},
		"process without name": {"process add --gpu 3 --pid 7", "--name NAME"},
		"no quantity":          {"process add --gpu 3 --pid 7 --name python --memory much", `--memory "much"`},
		"negative memory":      {"process add --gpu 3 --pid 7 --name python --memory -1Gi", `--memory "-1Gi"`},
		"process twice":        {"process add --gpu 2 --pid 1 --name python", "already"},
		"process beside MIG":   {"process add --gpu 0 --pid 7 --name python", "in MIG mode"},
		"no such MIG device":   {"process add --gpu 0 --pid 7 --name python --instance MIG-0", "fakegpu mig list"},
		"no such process":      {"process remove --gpu 2 --pid 7", "fakegpu process list"},
		"processes as text":    {"process list -o xml", "use table or json"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t, root, strings.Fields(test.command)...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if after := mustRun(t, root, "state", "-o", "json"); after != before {
				t.Errorf("the state changed: %s", after)
			}
		})
	}
	mustRun(t, root, "unload")
	if _, err := run(t, root, "mig", "enable", "--gpu", "1"); err == nil || !strings.Contains(err.Error(), "fakegpu load") {
		t.Errorf("without a driver: %v", err)
	}
}
