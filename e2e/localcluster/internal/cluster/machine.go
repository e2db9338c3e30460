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

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memslice/memslice/e2e/localcluster/internal/proc"
	"github.com/memslice/memslice/e2e/localcluster/internal/state"
)

// The machine's settings and folders outside of the cluster's that a node
// changes: they are remembered first and put back afterwards.

// sysctls that the kubelet (kernel and vm) and the network plugin (net) set.
func sysctls() []string {
	return []string{
		"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops",
		"net/ipv4/ip_forward", "vm/overcommit_memory", "vm/panic_on_oom",
	}
}

func sysctlFile(name string) string { return filepath.Join("/proc/sys", name) }

// neighbours are the states of the other clusters with a node on this machine:
// they share what is changed on it. The first to change it notes how it was, the
// others take over its notes, and the last to go puts it back.
func (c *Cluster) neighbours() ([]*state.State, error) {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(c.layout.Short), "memslice-*", "state.json"))
	if err != nil {
		return nil, fmt.Errorf("look for other clusters: %w", err)
	}
	var found []*state.State
	for _, file := range files {
		if filepath.Dir(file) == c.layout.Short {
			continue
		}
		// One that cannot be read is about to come or go.
		if s, err := state.Load(file); err == nil && s != nil && s.Node == state.Real {
			found = append(found, s)
		}
	}
	return found, nil
}

// remember notes what is not noted yet.
func (c *Cluster) remember(s *state.State) error {
	others, err := c.neighbours()
	if err != nil {
		return err
	}
	for _, other := range others {
		if s.Sysctls == nil {
			s.Sysctls = other.Sysctls
		}
		s.MadeDirs = append(s.MadeDirs, other.MadeDirs...)
	}
	if s.Sysctls == nil {
		if s.Sysctls, err = readSysctls(); err != nil {
			return err
		}
	}
	for _, shadow := range c.shadows() {
		if _, err := os.Stat(shadow.Path); errors.Is(err, os.ErrNotExist) {
			s.MadeDirs = append(s.MadeDirs, shadow.Path)
		}
	}
	slices.Sort(s.MadeDirs)
	s.MadeDirs = slices.Compact(s.MadeDirs)
	return nil
}

func readSysctls() (map[string]string, error) {
	values := map[string]string{}
	for _, name := range sysctls() {
		value, err := os.ReadFile(sysctlFile(name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read sysctl: %w", err)
		}
		values[name] = strings.TrimSpace(string(value))
	}
	return values, nil
}

// restore puts back what remember noted, once no neighbour needs it. (A folder
// must not be removed before: that would unmount what is mounted there in the
// neighbour's namespace.) Sysctls stay while another container runtime or
// kubelet runs: it may depend on them by now.
func (c *Cluster) restore(s *state.State) error {
	neighbours, err := c.neighbours()
	if err != nil || len(neighbours) > 0 {
		return err
	}
	runtimes, err := proc.Find(proc.Named("kubelet", "containerd", "dockerd", "crio"))
	if err != nil {
		return err
	}
	if len(runtimes) == 0 {
		for name, value := range s.Sysctls {
			if err := os.WriteFile(sysctlFile(name), []byte(value), 0); err != nil && !errors.Is(err, os.ErrPermission) {
				return fmt.Errorf("restore sysctl: %w", err)
			}
		}
	}
	for _, dir := range s.MadeDirs {
		// Not empty means that somebody else uses it by now.
		_ = os.Remove(dir)
	}
	return nil
}
