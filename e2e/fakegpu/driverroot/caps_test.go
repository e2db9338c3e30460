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
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memslice/memslice/pkg/golden"
)

func readMinors(t *testing.T, root *Root) string {
	t.Helper()
	content, err := os.ReadFile(root.join("proc/driver/nvidia-caps/mig-minors"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestMIGMinorsAsPublished has lines of real files, from NVIDIA's MIG user guide
// and from its programs.
func TestMIGMinorsAsPublished(t *testing.T) {
	root, _ := newRoot(t, "t4")
	content := readMinors(t, root)
	for _, line := range []string{
		"config 1", "monitor 2",
		"gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4", "gpu0/gi0/ci1/access 5", "gpu0/gi0/ci2/access 6",
		"gpu3/gi3/ci3/access 439", "gpu3/gi3/ci4/access 440", "gpu3/gi3/ci5/access 441",
		"gpu6/gi11/ci5/access 918", "gpu6/gi11/ci6/access 919", "gpu6/gi11/ci7/access 920",
		"gpu31/gi14/ci6/access 4321", "gpu31/gi14/ci7/access 4322",
	} {
		if !strings.Contains("\n"+content, "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	if lines := strings.Count(content, "\n"); lines != 4322 {
		t.Errorf("%d lines, want one for each minor number up to 4322", lines)
	}
}

// TestMIGMinorsGolden shows the whole file up to the second GPU.
func TestMIGMinorsGolden(t *testing.T) {
	root, _ := newRoot(t, "t4")
	first, _, _ := strings.Cut(readMinors(t, root), "gpu1/gi0/ci0")
	golden.Check(t, filepath.Join("testdata", "mig-minors.golden"), []byte(first))
}

// TestMinorsHaveNodes: what the file names for a GPU with MIG can be found in
// dev.
func TestMinorsHaveNodes(t *testing.T) {
	root, s := newRoot(t, "h100x8")
	for line := range strings.Lines(readMinors(t, root)) {
		var name string
		var minor int
		if _, err := fmt.Sscan(line, &name, &minor); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		gpu, has := 0, true
		if n, _ := fmt.Sscanf(name, "gpu%d/", &gpu); n == 1 {
			has = gpu < len(s.GPUs)
		}
		_, err := os.Lstat(root.join(fmt.Sprintf("dev/nvidia-caps/nvidia-cap%d", minor)))
		if (err == nil) != has {
			t.Errorf("%s: node of minor %d: %v", name, minor, err)
		}
	}
}

func TestMinorsGoWithTheDriver(t *testing.T) {
	root, s := newRoot(t, "h100x8")
	s.UnloadDriver()
	sync(t, root, s)
	if _, err := os.Stat(root.join("proc/driver/nvidia-caps/mig-minors")); !os.IsNotExist(err) {
		t.Errorf("the file is there without a driver: %v", err)
	}
	s.LoadDriver()
	sync(t, root, s)
	readMinors(t, root)
}
