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

package publish

import (
	"regexp"
	"testing"
)

func TestSemver(t *testing.T) {
	for version, want := range map[string]string{
		"535.104.05":           "535.104.5",
		"580.105.08":           "580.105.8",
		"570.00.00":            "570.0.0",
		"13.0":                 "13.0.0",
		"9.0":                  "9.0.0",
		"12":                   "12.0.0",
		"550.54.15-beta":       "550.54.15",
		"550.54.15.03":         "550.54.15",
		"550.54":               "550.54.0",
		"550..1":               "550.0.0",
		"0.0.0":                "0.0.0",
		"":                     "0.0.0",
		"unknown":              "0.0.0",
		"-1.2.3":               "0.0.0",
		"18446744073709551616": "0.0.0",
	} {
		if got := semver(version); got != want {
			t.Errorf("semver(%q): got %q, want %q", version, got, want)
		}
	}
}

// FuzzSemver wants what the API accepts and CEL can read, whatever a driver
// says, and versions that are fine already to stay as they are.
func FuzzSemver(f *testing.F) {
	strict := regexp.MustCompile(`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$`)
	for _, seed := range []string{"535.104.05", "13.0", "", "a.b", "1.2.3-rc.1+x", "00000000000000000000000.1", "99999999999999999999.0.0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, version string) {
		got := semver(version)
		if !strict.MatchString(got) || len(got) > 64 {
			t.Errorf("semver(%q): got %q, which is not a version", version, got)
		}
		if again := semver(got); again != got {
			t.Errorf("semver(%q) is %q, but semver of that is %q", version, got, again)
		}
	})
}
