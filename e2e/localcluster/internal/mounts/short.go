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

package mounts

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Bind makes the folder short another name of dir, for everybody on this
// machine. It is no error when that is so already.
func Bind(dir, short string) error {
	if err := os.MkdirAll(short, 0o755); err != nil {
		return fmt.Errorf("create %s: %w", short, err)
	}
	if same(dir, short) {
		return nil
	}
	// What is mounted there belongs to an earlier folder of the same name.
	if err := UnmountAll(short); err != nil {
		return err
	}
	if err := unix.Mount(dir, short, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", dir, short, err)
	}
	// Private, so that a mount namespace can be pinned to a file below it.
	if err := unix.Mount("", short, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make %s private: %w", short, err)
	}
	return nil
}

// Link makes the symlink short another name of dir, where mounting is not
// allowed or not needed.
func Link(dir, short string) error {
	if target, err := os.Readlink(short); err == nil && target == dir {
		return owned(short)
	}
	if err := os.Remove(short); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replace %s: %w", short, err)
	}
	if err := os.Symlink(dir, short); err != nil {
		return fmt.Errorf("link %s to %s: %w", short, dir, err)
	}
	return nil
}

// owned refuses a link that somebody else made in a folder that everybody can
// write to: they could turn it elsewhere.
func owned(link string) error {
	var stat unix.Stat_t
	if err := unix.Lstat(link, &stat); err != nil {
		return fmt.Errorf("look at %s: %w", link, err)
	}
	if int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not to you: ask them to remove it", link, stat.Uid)
	}
	return nil
}

// Unshort removes what Bind or Link made.
func Unshort(short string) error {
	if err := UnmountAll(short); err != nil {
		return err
	}
	if err := os.Remove(short); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", short, err)
	}
	return nil
}

// UnmountAll unmounts everything at dir and below it.
func UnmountAll(dir string) error {
	table, err := Table()
	if err != nil {
		return err
	}
	for _, point := range At(table, dir) {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		// Gone already: it was below one that was unmounted with all below it.
		if err != nil && !slices.Contains([]error{unix.EINVAL, unix.ENOENT}, err) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

func same(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
