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

// Package mounts reads the mount table, makes and removes the mounts of a local
// cluster, and keeps the mount namespace that its node lives in. It does not
// know what the folders are for.
package mounts

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Mount is one line of /proc/<pid>/mountinfo.
type Mount struct {
	Point        string // where it is mounted
	FSType       string
	SuperOptions []string // of the file system, such as a cgroup hierarchy's controllers
}

// Parse reads a mount table. Mounts are in the order in which they were made.
func Parse(r io.Reader) ([]Mount, error) {
	var mounts []Mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // an overlay's options list all of its layers
	for lines.Scan() {
		// "id parent major:minor root point options [tag...] - type source super"
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(rest) < 1 {
			return nil, fmt.Errorf("mount table: unexpected line %q", lines.Text())
		}
		mount := Mount{Point: unescape(fields[4]), FSType: rest[0]}
		if len(rest) > 1 {
			mount.SuperOptions = strings.Split(rest[len(rest)-1], ",")
		}
		mounts = append(mounts, mount)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("mount table: %w", err)
	}
	return mounts, nil
}

// Table returns the mounts that this process sees.
func Table() ([]Mount, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("open the mount table: %w", err)
	}
	defer file.Close()
	return Parse(file)
}

// At returns the mount points at dir and below it, the last made first: the
// order in which they can be unmounted.
func At(mounts []Mount, dir string) []string {
	var points []string
	for i := len(mounts) - 1; i >= 0; i-- {
		if point := mounts[i].Point; point == dir || strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	return points
}

// unescape undoes the kernel's \ooo for space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
