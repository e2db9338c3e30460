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

package state

import (
	"fmt"
	"slices"
	"strings"
)

// Process is a process that uses a GPU. It need not exist.
type Process struct {
	PID         uint32 `json:"pid"`
	Name        string `json:"name"`
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	// Instance is the UUID of the MIG device that it runs in, and empty for one
	// on the GPU itself.
	Instance string `json:"instance,omitempty"`
	// Cgroups are its own, and those above it, of a process that exists.
	Cgroups []Cgroup `json:"cgroups,omitempty"`
}

// AddProcess lets a process use the GPU, or one of its MIG devices.
func (g *GPU) AddProcess(p Process) error {
	if slices.ContainsFunc(g.Processes, func(other Process) bool { return other.PID == p.PID && other.Instance == p.Instance }) {
		return fmt.Errorf("process %d uses GPU %s already", p.PID, g.UUID)
	}
	switch {
	case p.Instance == "" && g.MIG.Current:
		return fmt.Errorf("GPU %s is in MIG mode: a process needs one of its instances, by UUID, as 'fakegpu mig list' shows them", g.UUID)
	case p.Instance != "" && !slices.ContainsFunc(g.MIGDevices(), func(d MIGDevice) bool { return d.Compute.UUID == p.Instance }):
		return fmt.Errorf("GPU %s has no MIG device %s: 'fakegpu mig list' shows them", g.UUID, p.Instance)
	}
	g.Processes = append(g.Processes, p)
	return nil
}

// RemoveProcess ends a process' use of the GPU and its MIG devices.
func (g *GPU) RemoveProcess(pid uint32) error {
	left := slices.DeleteFunc(slices.Clone(g.Processes), func(p Process) bool { return p.PID == pid })
	if len(left) == len(g.Processes) {
		return fmt.Errorf("no process %d uses GPU %s: 'fakegpu process list' shows those that do", pid, g.UUID)
	}
	g.Processes = left
	return nil
}

// ProcessesIn lists the processes in a MIG device.
func (g *GPU) ProcessesIn(uuid string) []Process {
	var in []Process
	for _, p := range g.Processes {
		if p.Instance == uuid {
			in = append(in, p)
		}
	}
	return in
}

// ProcessName is the name of a process that uses any of the node's GPUs.
func (s *State) ProcessName(pid uint32) (string, bool) {
	for _, gpu := range s.Present() {
		for _, p := range gpu.Processes {
			if p.PID == pid {
				return p.Name, true
			}
		}
	}
	return "", false
}

func describeProcesses(processes []Process) string {
	texts := make([]string, len(processes))
	for i, p := range processes {
		texts[i] = fmt.Sprintf("process %d (%s)", p.PID, p.Name)
	}
	return strings.Join(texts, ", ")
}
