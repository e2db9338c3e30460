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
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestCgroupsContain(t *testing.T) {
	const v1 = "4:memory:/memslice-ab/kubepods/pod1/c\n1:name=systemd:/user.slice\n0::/\n"
	for _, tt := range []struct {
		name, lines, cgroup string
		want                bool
	}{
		{"below, in one of the hierarchies", v1, "memslice-ab", true},
		{"the cgroup itself", "0::/memslice-ab\n", "memslice-ab", true},
		{"in a cgroup namespace's outside", "0::/../../memslice-ab/system\n", "memslice-ab", true},
		{"another with the same beginning", "0::/memslice-abc\n", "memslice-ab", false},
		{"another with the same end", "0::/x-memslice-ab\n", "memslice-ab", false},
		{"as the name of a hierarchy", "1:name=memslice-ab:/\n", "memslice-ab", false},
		{"colon in a path", "0::/a:b/memslice-ab\n", "memslice-ab", true},
		{"none", "", "memslice-ab", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := cgroupsContain(tt.lines, tt.cgroup); got != tt.want {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestKillAllByEnvironment(t *testing.T) {
	mark := "MEMSLICE_TEST=" + t.TempDir()
	marked := []Identity{sleeper(t, mark), sleeper(t, "A=b", mark)}
	other := sleeper(t, mark+"x")
	if err := KillAll(t.Context(), WithEnv(mark)); err != nil {
		t.Fatal(err)
	}
	for _, id := range marked {
		if id.Alive() {
			t.Errorf("%v is alive", id)
		}
	}
	if !other.Alive() {
		t.Error("a process with a longer value was killed")
	}
}

func TestFindByMountNamespace(t *testing.T) {
	child := sleeper(t)
	own, err := os.Stat("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	found, err := Find(Any(func(int) bool { return false }, InMountNamespace(own)))
	if err != nil {
		t.Fatal(err)
	}
	pids := map[int]bool{}
	for _, id := range found {
		pids[id.PID] = true
	}
	if !pids[child.PID] || pids[os.Getpid()] {
		t.Errorf("child %v found: %v; this process found: %v", child.PID, pids[child.PID], pids[os.Getpid()])
	}
}

func TestFindByName(t *testing.T) {
	child := sleeper(t)
	if match := Named("other", "sleep"); !match(child.PID) {
		t.Error("not found by its name")
	}
	if match := Named("slee"); match(child.PID) {
		t.Error("found by another name")
	}
}

func TestStartDetached(t *testing.T) {
	log := filepath.Join(t.TempDir(), "new", "x.log")
	id, err := StartDetached(Command{Path: "/bin/sh", Args: []string{"-c", "echo $A; echo err >&2; exec sleep 600"}, Env: []string{"A=b"}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(id.PID, syscall.SIGKILL) })
	for {
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if string(data) == "b\nerr\n" {
			break
		}
		if !id.Alive() {
			t.Fatalf("it ended; log: %q", data)
		}
	}
	stat, err := os.ReadFile(procFile(id.PID, "stat"))
	if err != nil {
		t.Fatal(err)
	}
	// Fields after the name: state, parent, group, session.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if fields[3] != strconv.Itoa(id.PID) {
		t.Errorf("session %s, want its own, %d", fields[3], id.PID)
	}
}

func TestStartDetachedNamesTheProgram(t *testing.T) {
	_, err := StartDetached(Command{Path: "/no/such/program", Log: filepath.Join(t.TempDir(), "log")})
	if err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("%v", err)
	}
}
