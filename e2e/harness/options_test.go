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

package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module github.com/memslice/memslice\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(root, "e2e", "harness")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(below)

	environment := map[string]string{"MEMSLICE_E2E_STATE": "../elsewhere", "MEMSLICE_E2E_NODE": "emulated", "MEMSLICE_E2E_PRESET": ""}
	o := NewOptions(func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	})
	if err := o.Complete(); err != nil {
		t.Fatal(err)
	}
	want := Options{
		Root: root, Bin: filepath.Join(root, "_output", "bin"), Images: filepath.Join(root, "_output", "images"),
		State: filepath.Join(root, "e2e", "elsewhere"), Node: NodeEmulated,
	}
	if o != want {
		t.Errorf("got  %+v\nwant %+v", o, want)
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, tc := range map[string]struct {
		options Options
		want    string
	}{
		"no such node":     {Options{Node: "virtual"}, "--node=virtual: must be auto, real or emulated"},
		"not in the clone": {Options{Node: NodeAuto}, "change into one or give --root"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.options.Complete(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}
