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

package driverroot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// The driver's major number is fixed; the others are what the kernel happened
// to hand out.
const (
	majorNVIDIA = 195
	majorUVM    = 511
	majorCaps   = 508
)

// node is a character device below dev.
type node struct {
	name         string
	major, minor uint32
}

// nodes are the devices that a loaded driver has.
func nodes(s *state.State) []node {
	if !s.Driver.Loaded {
		return nil
	}
	all := []node{
		{"nvidiactl", majorNVIDIA, 255},
		{"nvidia-modeset", majorNVIDIA, 254},
		{"nvidia-uvm", majorUVM, 0},
		{"nvidia-uvm-tools", majorUVM, 1},
	}
	partitionable := false
	for _, gpu := range s.Present() {
		all = append(all, node{fmt.Sprintf("nvidia%d", gpu.Minor), majorNVIDIA, uint32(gpu.Minor)})
		if model, err := catalog.Lookup(gpu.Model); err == nil && model.MIG != nil {
			partitionable = true
			all = append(all, capNodes(gpu.Minor)...)
		}
	}
	if partitionable {
		all = append(all, capNode(capConfig), capNode(capMonitor))
	}
	return all
}

// syncDevices makes the nodes that the state calls for and removes the rest.
func (r *Root) syncDevices(s *state.State) error {
	wanted := nodes(s)
	names := map[string]bool{}
	for _, n := range wanted {
		names[n.name] = true
	}
	if err := os.MkdirAll(r.join("dev"), 0o755); err != nil {
		return fmt.Errorf("making the folder for device nodes: %w", err)
	}
	err := filepath.WalkDir(r.join("dev"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, r.join("dev")+"/")
		if !strings.HasPrefix(name, "nvidia") || names[name] {
			return nil
		}
		return r.remove(path)
	})
	if err != nil {
		return fmt.Errorf("clearing device nodes: %w", err)
	}
	for _, n := range wanted {
		if err := r.addDevice(n); err != nil {
			return err
		}
	}
	return nil
}

// addDevice makes a node, or a placeholder where the caller may not.
func (r *Root) addDevice(n node) error {
	path := filepath.Join(r.join("dev"), n.name)
	if isDevice(path, n) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the folder of %s: %w", path, err)
	}
	if err := r.remove(path); err != nil {
		return err
	}
	err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(n.major, n.minor)))
	if errors.Is(err, unix.EPERM) {
		// Since Linux 5.8 everybody may make this one, which no driver serves.
		r.placeholders = true
		err = unix.Mknod(path, unix.S_IFCHR|0o666, 0)
	}
	if err != nil {
		return fmt.Errorf("making the device node %s: %w", path, err)
	}
	// The umask has had its say on the mode.
	if err := os.Chmod(path, 0o666); err != nil {
		return fmt.Errorf("opening the device node %s to everyone: %w", path, err)
	}
	return nil
}

func isDevice(path string, n node) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeCharDevice == 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Rdev == unix.Mkdev(n.major, n.minor)
}
