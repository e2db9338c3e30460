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

// Package proc starts, recognises and ends processes. It knows nothing of what
// they are.
package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Identity names one process for good: a number that was given to another
// process later, or after a reboot, does not match.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot, field 22 of /proc/<pid>/stat
	Boot  string `json:"boot"`  // the kernel's boot id
}

// BootID is the kernel's identifier of this boot.
var BootID = sync.OnceValues(func() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
})

// Of returns the identity of a process that exists now.
func Of(pid int) (Identity, error) {
	boot, err := BootID()
	if err != nil {
		return Identity{}, err
	}
	stat, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return Identity{}, fmt.Errorf("read the status of process %d: %w", pid, err)
	}
	_, start, err := parseStat(string(stat))
	if err != nil {
		return Identity{}, fmt.Errorf("read the status of process %d: %w", pid, err)
	}
	return Identity{PID: pid, Start: start, Boot: boot}, nil
}

// Alive says whether the process still runs; one that has ended and waits for
// its parent to notice does not.
func (id Identity) Alive() bool {
	if id.PID <= 0 {
		return false
	}
	boot, err := BootID()
	if err != nil || boot != id.Boot {
		return false
	}
	stat, err := os.ReadFile(procFile(id.PID, "stat"))
	if err != nil {
		return false
	}
	state, start, err := parseStat(string(stat))
	return err == nil && start == id.Start && state != 'Z' && state != 'X'
}

// parseStat returns the state and start time from /proc/<pid>/stat. The second
// field is the program's name in parentheses and may itself contain any
// character, so fields are counted from the last parenthesis.
func parseStat(stat string) (state byte, start uint64, err error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, 0, fmt.Errorf("no program name in %q", stat)
	}
	fields := strings.Fields(stat[end+1:])
	const startField = 22 - 3 // the state is field 3
	if len(fields) <= startField {
		return 0, 0, fmt.Errorf("too few fields in %q", stat)
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("start time in %q: %w", stat, err)
	}
	return fields[0][0], start, nil
}

// Save writes the identity to a file.
func (id Identity) Save(file string) error {
	data, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("encode process identity: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("create folder of %s: %w", file, err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// Load reads an identity. No file, or one that was cut short by a crash, is the
// zero identity, which is not alive.
func Load(file string) (Identity, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return Identity{}, nil
	}
	if err != nil {
		return Identity{}, fmt.Errorf("read %s: %w", file, err)
	}
	var id Identity
	if !json.Valid(data) {
		return id, nil
	}
	if err := json.Unmarshal(data, &id); err != nil {
		return Identity{}, fmt.Errorf("read %s: %w", file, err)
	}
	return id, nil
}

func procFile(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}
