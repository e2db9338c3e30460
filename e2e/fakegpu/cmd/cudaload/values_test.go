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

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestVisible(t *testing.T) {
	dev := t.TempDir()
	for _, name := range []string{"nvidia7", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia2x", "null"} {
		if err := os.WriteFile(filepath.Join(dev, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		picked string
		want   []int
	}{
		"all, by number":                 {want: []int{2, 7, 10}},
		"one":                            {picked: "1", want: []int{7}},
		"in another order":               {picked: "2,0", want: []int{10, 2}},
		"those before one that is not":   {picked: "0,3,1", want: []int{2}},
		"none, as the first one is none": {picked: "GPU-x,1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := visible(dev, func(string) string { return tc.picked })
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
		})
	}
	if _, err := visible(filepath.Join(dev, "gone"), os.Getenv); err == nil {
		t.Error("without device nodes there is no error")
	}
}

func TestQuantity(t *testing.T) {
	for text, want := range map[string]uint64{"5Gi": 5 << 30, "0.5Gi": 1 << 29, "1e9": 1e9, "1": 1, "0": 0} {
		var q quantity
		if err := q.Set(text); err != nil || uint64(q) != want {
			t.Errorf("%s: %d, %v, want %d", text, q, err, want)
		}
	}
	for _, text := range []string{"", "lots", "-1Gi", "1Zi"} {
		var q quantity
		if err := q.Set(text); err == nil {
			t.Errorf("%q is taken for %d", text, q)
		}
	}
}
