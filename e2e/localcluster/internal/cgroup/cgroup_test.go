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

package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/localcluster/internal/mounts"
)

const (
	hybrid = `1 0 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
2 1 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
3 1 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
4 1 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
5 1 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
6 1 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
7 1 0:32 / /var/lib/other/memory rw - cgroup cgroup rw,memory
`
	unified = "1 0 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
)

func hierarchies(t *testing.T, table string) []Hierarchy {
	t.Helper()
	parsed, err := mounts.Parse(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	return Hierarchies(parsed)
}

func TestHierarchies(t *testing.T) {
	for _, tt := range []struct {
		name, table string
		want        []Hierarchy
	}{
		{"hybrid", hybrid, []Hierarchy{
			{Point: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"cpu", "cpuacct"}},
			{Point: "/sys/fs/cgroup/cpuset", Controllers: []string{"cpuset"}},
			{Point: "/sys/fs/cgroup/memory", Controllers: []string{"memory"}},
			{Point: "/sys/fs/cgroup/systemd", Controllers: []string{"name=systemd"}},
			{Point: "/sys/fs/cgroup/unified", Unified: true},
		}},
		{"v2", unified, []Hierarchy{{Point: "/sys/fs/cgroup", Unified: true}}},
		{"none", "1 0 0:1 / / rw - ext4 /dev/vda rw\n", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, hierarchies(t, tt.table)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	for _, tt := range []struct {
		name, table string
		v2          []string
		want        []string
	}{
		{"hybrid", hybrid, nil, nil},
		{"v2 needs no cpuacct", unified, []string{"cpuset", "cpu", "io", "memory", "pids"}, nil},
		{"v2 with few delegated", unified, []string{"memory", "pids"}, []string{"cpu", "cpuset"}},
		{"no cgroups", "", nil, []string{"cpu", "cpuset", "memory"}},
		{"v1 without memory", strings.ReplaceAll(hybrid, "rw,memory", "rw,pids"), nil, []string{"memory"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Missing(hierarchies(t, tt.table), tt.v2)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A folder with a cgroup's files stands in for a mounted v2 hierarchy.
func TestUnifiedEnablesControllers(t *testing.T) {
	root := t.TempDir()
	for file, content := range map[string]string{"cgroup.controllers": "cpu memory\n", "cgroup.subtree_control": ""} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := []Hierarchy{{Point: root, Unified: true}}
	for range 2 {
		if err := Create(h, "memslice-x"); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control")); err != nil || string(data) != "+cpu +memory" {
		t.Errorf("%q, %v", data, err)
	}
	for range 2 {
		if err := Remove(h, "memslice-x"); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 2 {
		t.Errorf("left %v, %v", entries, err)
	}
}

// A new v1 cpuset is empty and takes over its parent's.
func TestInheritCpuset(t *testing.T) {
	parent := t.TempDir()
	child := filepath.Join(parent, "c")
	if err := os.Mkdir(child, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{
		"cpuset.cpus": "0-1\n", "cpuset.mems": "0\n", "c/cpuset.cpus": "\n", "c/cpuset.mems": "1\n",
	} {
		if err := os.WriteFile(filepath.Join(parent, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := inheritCpuset(child); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"cpuset.cpus": "0-1\n", "cpuset.mems": "1\n"} {
		if got, err := os.ReadFile(filepath.Join(child, file)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", file, got, err, want)
		}
	}
}

func TestCheckNamesWhatIsMissing(t *testing.T) {
	err := Check([]Hierarchy{{Point: t.TempDir(), Unified: true}}, "memslice-x")
	if err == nil || !strings.Contains(err.Error(), "cpu, cpuset, memory") {
		t.Errorf("%v", err)
	}
}
