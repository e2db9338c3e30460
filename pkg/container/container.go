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

// Package container finds the container that a process is in, by its cgroup.
//
// Nothing is taken from a process but what the kernel says of it. The package
// knows neither claims nor GPUs.
package container

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// ErrNotContainer is the answer for a process that is in no container of a pod.
var ErrNotContainer = errors.New("the process is in no container of a pod")

// Container is one of a pod.
type Container struct {
	Pod string // UID
	ID  string

	// Cgroup and PodCgroup are the directories of their cgroups.
	Cgroup    string
	PodCgroup string
}

// Finder finds containers on this machine. It has to be in the host's namespaces
// of processes and cgroups.
type Finder struct {
	ProcRoot   string // where procfs is mounted
	CgroupRoot string // where the cgroup file systems are mounted
}

// Find is the container of a process. The error is ErrNotContainer where it is in
// none, and fs.ErrNotExist where the process has ended.
func (f Finder) Find(pid int) (Container, error) {
	name, err := f.cgroup(pid)
	if err != nil {
		return Container{}, err
	}
	c, ok := parse(name)
	if !ok {
		return Container{}, fmt.Errorf("process %d, in cgroup %s: %w", pid, name, ErrNotContainer)
	}
	root := f.unified()
	c.Cgroup, c.PodCgroup = filepath.Join(root, c.Cgroup), filepath.Join(root, c.PodCgroup)
	return c, nil
}

// Cgroup is the directory of a process' cgroup.
func (f Finder) Cgroup(pid int) (string, error) {
	name, err := f.cgroup(pid)
	if err != nil {
		return "", err
	}
	return filepath.Join(f.unified(), name), nil
}

// Exists tells whether a cgroup is still there.
func (f Finder) Exists(cgroup string) bool {
	info, err := os.Stat(cgroup)
	return err == nil && info.IsDir()
}

// Command is the name of a process' program, fit for print.
func (f Finder) Command(pid int) (string, error) {
	data, err := os.ReadFile(f.proc(pid, "comm"))
	if err != nil {
		return "", fmt.Errorf("read the name of process %d: %w", pid, err)
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return '?'
		}
		return r
	}, strings.TrimSuffix(string(data), "\n")), nil
}

func (f Finder) proc(pid int, name string) string {
	return filepath.Join(f.ProcRoot, fmt.Sprint(pid), name)
}

// unified is where the hierarchy of cgroup v2 is: next to those of v1, or alone.
func (f Finder) unified() string {
	hybrid := filepath.Join(f.CgroupRoot, "unified")
	if _, err := os.Stat(filepath.Join(hybrid, "cgroup.controllers")); err == nil {
		return hybrid
	}
	return f.CgroupRoot
}

// cgroup is the name of a process' cgroup in the hierarchy of cgroup v2.
func (f Finder) cgroup(pid int) (string, error) {
	if _, err := os.Stat(filepath.Join(f.unified(), "cgroup.controllers")); err != nil {
		return "", fmt.Errorf("%s is no file system of cgroup v2, which it takes to tell containers apart: boot the node with cgroup v2, and check that --cgroup-root names where it is mounted: %w", f.CgroupRoot, err)
	}
	data, err := os.ReadFile(f.proc(pid, "cgroup"))
	if err != nil {
		return "", fmt.Errorf("read the cgroup of process %d: %w", pid, err)
	}
	name, err := unifiedName(data)
	if err != nil {
		return "", fmt.Errorf("the cgroup of process %d: %w", pid, err)
	}
	return name, nil
}

// unifiedName finds the line of cgroup v2 in a file /proc/<pid>/cgroup.
func unifiedName(data []byte) (string, error) {
	for line := range bytes.Lines(data) {
		name, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("0::"))
		if !ok {
			continue
		}
		switch s := string(name); {
		case strings.HasPrefix(s, "/.."):
			return "", fmt.Errorf("%q is outside the cgroup namespace of this process, which has to be the host's", s)
		case !path.IsAbs(s) || path.Clean(s) != s:
			return "", fmt.Errorf("%q is no name of a cgroup", s)
		default:
			return s, nil
		}
	}
	return "", errors.New("it is in none of cgroup v2")
}

var (
	// The names that the kubelet gives the cgroups of pods, with its driver
	// cgroupfs, and with systemd, where dashes are separators. Static pods have
	// a hash for a UID.
	podName   = regexp.MustCompile(`^pod([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32})$`)
	podSlice  = regexp.MustCompile(`^(?:[0-9A-Za-z_.]+-)*kubepods(?:-burstable|-besteffort)?-pod([0-9a-f]{8}_[0-9a-f]{4}_[0-9a-f]{4}_[0-9a-f]{4}_[0-9a-f]{12}|[0-9a-f]{32})\.slice$`)
	container = regexp.MustCompile(`^(?:[a-z-]+-)?([0-9a-f]{64})(?:\.scope)?$`)
)

// parse takes a cgroup's name apart. The directories of the container are names
// below the hierarchy's root.
func parse(name string) (Container, bool) {
	parts := strings.Split(strings.TrimPrefix(name, "/"), "/")
	for i := 0; i+1 < len(parts); i++ {
		pod := uid(parts[i])
		id := container.FindStringSubmatch(parts[i+1])
		if pod == "" || id == nil {
			continue
		}
		return Container{
			Pod: pod, ID: id[1],
			Cgroup:    "/" + path.Join(parts[:i+2]...),
			PodCgroup: "/" + path.Join(parts[:i+1]...),
		}, true
	}
	return Container{}, false
}

// uid is that of the pod whose cgroup has a name, or empty.
func uid(name string) string {
	if m := podName.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	if m := podSlice.FindStringSubmatch(name); m != nil {
		return strings.ReplaceAll(m[1], "_", "-")
	}
	return ""
}
