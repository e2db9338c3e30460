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

package nvidia

import "testing"

// The numbers of multiprocessors are those of NVIDIA's data sheets.
func TestCoresPerMultiprocessor(t *testing.T) {
	for name, tc := range map[string]struct{ major, minor, cores, want int }{
		"P100":                     {6, 0, 3584, 56},
		"P40":                      {6, 1, 3840, 30},
		"V100":                     {7, 0, 5120, 80},
		"T4":                       {7, 5, 2560, 40},
		"A100":                     {8, 0, 6912, 108},
		"RTX 3090":                 {8, 6, 10496, 82},
		"RTX 4090":                 {8, 9, 16384, 128},
		"H100 SXM":                 {9, 0, 16896, 132},
		"B200":                     {10, 0, 18944, 148},
		"RTX PRO 6000 (Blackwell)": {12, 0, 24064, 188},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.cores / coresPerMultiprocessor(tc.major, tc.minor); got != tc.want {
				t.Errorf("got %d multiprocessors, want %d", got, tc.want)
			}
		})
	}
	if got := coresPerMultiprocessor(99, 0); got != 0 {
		t.Errorf("unknown compute capability: got %d, want 0", got)
	}
}

func TestCUDAVersion(t *testing.T) {
	for version, want := range map[int]string{13000: "13.0", 12040: "12.4", 12080: "12.8", 11080: "11.8"} {
		if got := cudaVersion(version); got != want {
			t.Errorf("version %d: got %q, want %q", version, got, want)
		}
	}
}
