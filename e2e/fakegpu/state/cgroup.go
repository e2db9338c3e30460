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
	"os"
	"path/filepath"
	"syscall"
)

// Cgroup is a cgroup of a process or a limit: its directory, which another one of
// the same path does not become.
type Cgroup struct {
	Path   string `json:"path"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

func (c Cgroup) same(other Cgroup) bool { return c.Device == other.Device && c.Inode == other.Inode }

// CgroupAt is the cgroup whose directory is at a path.
func CgroupAt(path string) (Cgroup, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Cgroup{}, fmt.Errorf("open cgroup: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return Cgroup{}, fmt.Errorf("open cgroup: %s is no directory", path)
	}
	return Cgroup{Path: path, Device: stat.Dev, Inode: stat.Ino}, nil
}

// AnyDirectory is a file in the store's directory. Where it is, any directory
// does for a cgroup, as tests need it.
const AnyDirectory = "cgroup-anywhere"

// cgroup2 is CGROUP2_SUPER_MAGIC.
const cgroup2 = 0x63677270

// Cgroup is the cgroup at a path, which a limit is for. It must be one of
// version 2.
func (s *Store) Cgroup(path string) (Cgroup, error) {
	found, err := CgroupAt(path)
	if err != nil {
		return Cgroup{}, err
	}
	if _, err := os.Stat(filepath.Join(s.dir, AnyDirectory)); err == nil {
		return found, nil
	}
	var system syscall.Statfs_t
	if err := syscall.Statfs(path, &system); err != nil {
		return Cgroup{}, fmt.Errorf("open cgroup %s: %w", path, err)
	}
	if system.Type != cgroup2 {
		return Cgroup{}, fmt.Errorf("open cgroup: %s is in no cgroup file system of version 2", path)
	}
	return found, nil
}
