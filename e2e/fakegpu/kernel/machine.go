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

package kernel

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// Machine is where the kernel's file systems are.
type Machine struct {
	Proc   string // "/proc"
	Cgroup string // "/sys/fs/cgroup"
}

// process is what the kernel knows of one: its name, its cgroup of version 2, and
// those above that.
func (m Machine) process(pid int) (state.Process, error) {
	read := func(name string) (string, error) {
		text, err := os.ReadFile(filepath.Join(m.Proc, fmt.Sprint(pid), name))
		return strings.TrimSpace(string(text)), err
	}
	p := state.Process{PID: uint32(pid)}
	var err error
	if p.Name, err = read("comm"); err != nil {
		return p, fmt.Errorf("look at process %d: %w", pid, err)
	}
	lines, err := read("cgroup")
	if err != nil {
		return p, fmt.Errorf("look at process %d: %w", pid, err)
	}
	for line := range strings.Lines(lines) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		root := m.unified()
		for dir := filepath.Join(root, name); ; dir = filepath.Dir(dir) {
			cgroup, err := state.CgroupAt(dir)
			if err != nil {
				return p, fmt.Errorf("process %d: %w", pid, err)
			}
			p.Cgroups = append(p.Cgroups, cgroup)
			if dir == root || !strings.HasPrefix(dir, root) {
				return p, nil
			}
		}
	}
	return p, fmt.Errorf("process %d is in no cgroup of version 2", pid)
}

func (m Machine) unified() string {
	if hybrid := filepath.Join(m.Cgroup, "unified"); isDir(hybrid) {
		return hybrid
	}
	return m.Cgroup
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// exists looks at all cgroups once: those who set limits may have seen them under
// other paths.
func (m Machine) exists() func(state.Cgroup) bool {
	var there map[[2]uint64]bool
	return func(c state.Cgroup) bool {
		if there == nil {
			there = map[[2]uint64]bool{}
			// One that goes meanwhile is no more.
			_ = filepath.WalkDir(m.unified(), func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					if found, err := state.CgroupAt(path); err == nil {
						there[[2]uint64{found.Device, found.Inode}] = true
					}
				}
				return nil
			})
		}
		return there[[2]uint64{c.Device, c.Inode}]
	}
}
