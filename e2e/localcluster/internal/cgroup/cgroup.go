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

// Package cgroup makes and removes one cgroup, under the same name in every
// hierarchy of the machine: cgroup v1, v2, or both (hybrid).
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/memslice/memslice/e2e/localcluster/internal/mounts"
)

// Hierarchy is one mounted cgroup file system.
type Hierarchy struct {
	Point string
	// Controllers of a v1 hierarchy; nil for v2, which lists its own in a file.
	Controllers []string
	Unified     bool // v2
}

// Hierarchies finds them in the mount table; one that is mounted twice is taken
// once.
func Hierarchies(table []mounts.Mount) []Hierarchy {
	var found []Hierarchy
	seen := map[string]bool{}
	for _, m := range table {
		h := Hierarchy{Point: m.Point, Unified: m.FSType == "cgroup2"}
		switch m.FSType {
		case "cgroup":
			for _, option := range m.SuperOptions {
				if !slices.Contains([]string{"rw", "ro"}, option) {
					h.Controllers = append(h.Controllers, option)
				}
			}
		case "cgroup2":
		default:
			continue
		}
		if key := strings.Join(h.Controllers, ","); !seen[key] {
			seen[key] = true
			found = append(found, h)
		}
	}
	return found
}

// Needed by the kubelet.
var needed = []string{"cpu", "cpuacct", "cpuset", "memory"}

// System is the cgroup of the node's own programs, below the root cgroup.
const System = "system"

// Missing returns the controllers that the kubelet needs and the hierarchies,
// whose v2 controllers are given, do not offer.
func Missing(hierarchies []Hierarchy, v2 []string) []string {
	offered := slices.Clone(v2)
	v1 := false
	for _, h := range hierarchies {
		v1 = v1 || !h.Unified && slices.Contains(h.Controllers, "cpu")
		offered = append(offered, h.Controllers...)
	}
	var missing []string
	for _, controller := range needed {
		if controller == "cpuacct" && !v1 {
			continue // v2 always accounts
		}
		if !slices.Contains(offered, controller) {
			missing = append(missing, controller)
		}
	}
	return missing
}

// Check says why a node's cgroups cannot be made here, or nil.
func Check(hierarchies []Hierarchy, name string) error {
	var v2 []string
	for _, h := range hierarchies {
		if h.Unified {
			v2 = controllers(h.Point)
		}
	}
	if missing := Missing(hierarchies, v2); len(missing) > 0 {
		return fmt.Errorf("no cgroup controller %s", strings.Join(missing, ", "))
	}
	existed := exists(hierarchies, name)
	err := Create(hierarchies, name)
	if !existed {
		err = errors.Join(err, Remove(hierarchies, name))
	}
	return err
}

func exists(hierarchies []Hierarchy, name string) bool {
	return slices.ContainsFunc(hierarchies, func(h Hierarchy) bool {
		_, err := os.Stat(filepath.Join(h.Point, name))
		return err == nil
	})
}

// Create makes the cgroup and System below it, ready for processes. It is no
// error when they exist.
func Create(hierarchies []Hierarchy, name string) error {
	for _, h := range hierarchies {
		root := filepath.Join(h.Point, name)
		if h.Unified {
			if err := enable(h.Point); err != nil {
				return err
			}
		}
		for _, dir := range []string{root, filepath.Join(root, System)} {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("create cgroup: %w", err)
			}
			if slices.Contains(h.Controllers, "cpuset") {
				if err := inheritCpuset(dir); err != nil {
					return err
				}
			}
		}
		if h.Unified {
			if err := enable(root); err != nil {
				return err
			}
		}
	}
	return nil
}

// enable lets the children of a v2 cgroup use all of its controllers.
func enable(dir string) error {
	var words []string
	for _, controller := range controllers(dir) {
		words = append(words, "+"+controller)
	}
	if len(words) == 0 {
		return nil // hybrid: v1 has them all
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(strings.Join(words, " ")), 0); err != nil {
		return fmt.Errorf("enable cgroup controllers: %w", err)
	}
	return nil
}

func controllers(dir string) []string {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

// inheritCpuset fills in what a new v1 cpuset lacks before it can hold
// processes.
func inheritCpuset(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return fmt.Errorf("read cpuset: %w", err)
		}
		if len(strings.TrimSpace(string(own))) > 0 {
			continue
		}
		parent, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil {
			return fmt.Errorf("read cpuset: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), parent, 0); err != nil {
			return fmt.Errorf("set cpuset: %w", err)
		}
	}
	return nil
}

// Attach moves a process to System below the cgroup.
func Attach(hierarchies []Hierarchy, name string, pid int) error {
	for _, h := range hierarchies {
		file := filepath.Join(h.Point, name, System, "cgroup.procs")
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("move process %d to its cgroup: %w", pid, err)
		}
	}
	return nil
}

// Remove removes the cgroup and all below it, which must hold no process any
// more. It is no error when it does not exist.
func Remove(hierarchies []Hierarchy, name string) error {
	for _, h := range hierarchies {
		if err := removeTree(filepath.Join(h.Point, name)); err != nil {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}

func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Reverse(dirs)
	for _, dir := range dirs {
		if err := removeOne(dir); err != nil {
			return err
		}
	}
	return nil
}

// removeOne waits a moment for processes that have ended but are not yet
// accounted for.
func removeOne(dir string) error {
	for attempt := 0; ; attempt++ {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || attempt == 100 {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		time.Sleep(20 * time.Millisecond)
	}
}
