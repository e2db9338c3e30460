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

package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const tail = " 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 2793472 100"
	for _, tt := range []struct {
		name  string
		stat  string
		state byte
		start uint64
		err   bool
	}{
		{"plain", "7 (kube) S" + tail, 'S', 4242, false},
		{"name with spaces and parentheses", "7 (a) Z (b c) R" + tail, 'R', 4242, false},
		{"cut short", "7 (kube) S 1 7", 0, 0, true},
		{"no name", "7 kube S" + tail, 0, 0, true},
		{"start is no number", "7 (kube) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 x", 0, 0, true},
		{"empty", "", 0, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state, start, err := parseStat(tt.stat)
			if (err != nil) != tt.err || start != tt.start || state != tt.state {
				t.Errorf("%q, %d, %v", state, start, err)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (kube) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 2793472 100")
	f.Add("7 (")
	f.Fuzz(func(t *testing.T, stat string) {
		if state, _, err := parseStat(stat); err == nil && state == 0 {
			t.Errorf("no state and no error for %q", stat)
		}
	})
}

// sleeper starts a process that is ended with the test.
func sleeper(t *testing.T, env ...string) Identity {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() { _ = cmd.Wait() }()
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestStop(t *testing.T) {
	id := sleeper(t)
	if !id.Alive() {
		t.Fatal("a running process is not alive")
	}
	if err := Stop(t.Context(), id, time.Minute); err != nil {
		t.Fatal(err)
	}
	if id.Alive() {
		t.Error("alive after it was stopped")
	}
	if err := Stop(t.Context(), id, time.Minute); err != nil {
		t.Errorf("stopping it again: %v", err)
	}
}

// A number that now belongs to another process, or that is from before a reboot,
// must not cost that process its life.
func TestStopSparesOthers(t *testing.T) {
	running := sleeper(t)
	for name, stale := range map[string]Identity{
		"earlier process with this number": {PID: running.PID, Start: running.Start - 1, Boot: running.Boot},
		"before a reboot":                  {PID: running.PID, Start: running.Start, Boot: "another"},
		"none":                             {},
	} {
		if stale.Alive() {
			t.Errorf("%s: alive", name)
		}
		if err := Stop(t.Context(), stale, time.Minute); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !running.Alive() {
		t.Error("the wrong process was stopped")
	}
}

func TestStopInsists(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	id, err := StartDetached(Command{Path: "/bin/sh", Args: []string{"-c", "trap '' TERM; echo ready; while :; do sleep 1; done"}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	for data := ""; data != "ready\n"; {
		read, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		data = string(read)
	}
	if err := Stop(t.Context(), id, 50*time.Millisecond); err != nil || id.Alive() {
		t.Errorf("a process that ignores SIGTERM: %v, alive %v", err, id.Alive())
	}
}

func TestSaveAndLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid", "x")
	if id, err := Load(file); id.Alive() || err != nil {
		t.Errorf("without a file: %v, %v", id, err)
	}
	id, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Save(file); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(file); got != id || err != nil {
		t.Errorf("%v, %v, want %v", got, err, id)
	}
	if err := os.WriteFile(file, []byte(`{"pid": 1, "sta`), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := Load(file); id.Alive() || err != nil {
		t.Errorf("a file cut short: %v, %v", id, err)
	}
}
