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
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Match says whether a process is wanted. Processes that end meanwhile, or that
// this user may not look at, are not.
type Match func(pid int) bool

// Any matches what one of the matches does.
func Any(matches ...Match) Match {
	return func(pid int) bool {
		for _, match := range matches {
			if match(pid) {
				return true
			}
		}
		return false
	}
}

// InCgroup matches processes below a cgroup of this name in any hierarchy.
func InCgroup(name string) Match {
	return func(pid int) bool {
		data, err := os.ReadFile(procFile(pid, "cgroup"))
		return err == nil && cgroupsContain(string(data), name)
	}
}

// cgroupsContain looks for a path element in the lines of /proc/<pid>/cgroup,
// "id:controllers:path".
func cgroupsContain(lines, name string) bool {
	for line := range strings.Lines(lines) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(fields) == 3 && strings.Contains(fields[2]+"/", "/"+name+"/") {
			return true
		}
	}
	return false
}

// WithEnv matches processes that were started with this variable ("NAME=value").
func WithEnv(variable string) Match {
	return func(pid int) bool {
		data, err := os.ReadFile(procFile(pid, "environ"))
		return err == nil && strings.Contains("\x00"+string(data)+"\x00", "\x00"+variable+"\x00")
	}
}

// InMountNamespace matches processes whose mount namespace is the file ns.
func InMountNamespace(ns os.FileInfo) Match {
	return func(pid int) bool {
		info, err := os.Stat(procFile(pid, "ns/mnt"))
		return err == nil && os.SameFile(info, ns)
	}
}

// Find returns the matching processes except this one.
func Find(match Match) ([]Identity, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []Identity
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || !match(pid) {
			continue
		}
		if id, err := Of(pid); err == nil && id.Alive() {
			found = append(found, id)
		}
	}
	return found, nil
}

// KillAll kills the matching processes, and those that they start meanwhile,
// until none is left.
func KillAll(ctx context.Context, match Match) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		found, err := Find(match)
		if err != nil || len(found) == 0 {
			return err
		}
		var left []error
		for _, id := range found {
			if process, err := os.FindProcess(id.PID); err == nil {
				if id.Alive() {
					_ = process.Kill()
				}
				_ = process.Release()
			}
			left = append(left, fmt.Errorf("process %d (%s) does not end although it was killed", id.PID, name(id.PID)))
		}
		select {
		case <-ctx.Done():
			return errors.Join(left...)
		case <-time.After(poll):
		}
	}
}

func name(pid int) string {
	data, err := os.ReadFile(procFile(pid, "comm"))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}

// Named matches processes of programs with these names.
func Named(names ...string) Match {
	return func(pid int) bool { return slices.Contains(names, name(pid)) }
}
