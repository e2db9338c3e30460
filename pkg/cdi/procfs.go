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

package cdi

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// minorsFile has a line "gpu0/gi1/access 12" for each capability that there
	// can be, by the minor number of the GPU and the numbers of its instances.
	minorsFile = "driver/nvidia-caps/mig-minors"
	// majorsFile has a line "508 nvidia-caps".
	majorsFile = "devices"
	majorName  = "nvidia-caps"

	// maxProcFile is ten times what the driver writes for its most GPUs.
	maxProcFile = 1 << 20
)

// capabilityMinor is the minor number of a capability's device node.
func (n *NVIDIA) capabilityMinor(name string) (int, error) {
	minor, err := n.lookUp(minorsFile, name, 0)
	return int(minor), err
}

// capabilityMajor is the major number of all of them, which the kernel picks
// when the driver is loaded.
func (n *NVIDIA) capabilityMajor() (int64, error) { return n.lookUp(majorsFile, majorName, 1) }

// lookUp finds the number that stands beside a name in a file of procfs.
func (n *NVIDIA) lookUp(file, name string, column int) (int64, error) {
	path := filepath.Join(n.o.ProcRoot, file)
	data, err := readProc(path)
	if err != nil {
		return 0, err
	}
	number, err := numberBeside(string(data), name, column)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return number, nil
}

// readProc reads a file whose size is not known before.
func readProc(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxProcFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxProcFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxProcFile)
	}
	return data, nil
}

// numberBeside finds the line of two words that has name in a column, 0 or 1,
// and returns the other one. Lines about anything else do not matter.
func numberBeside(text, name string, column int) (int64, error) {
	const bits = 20 // of a minor number; a major number has 12
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 2 || words[column] != name {
			continue
		}
		number, err := strconv.ParseUint(words[1-column], 10, bits)
		if err != nil {
			return 0, fmt.Errorf("the line of %q: %w", name, err)
		}
		return int64(number), nil
	}
	return 0, fmt.Errorf("it has no line for %q", name)
}
