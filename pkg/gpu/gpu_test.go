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

package gpu

import "testing"

func TestID(t *testing.T) {
	for name, tc := range map[string]struct{ uuid, want string }{
		"leading digits of the UUID": {"GPU-1f5e9c0a-77b2-4d0e-9f8a-0123456789ab", "1f5e9c0a-77b2"},
		"anything else is hashed":    {"GPU-not/a uuid", "6d616c771cbf"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&GPU{UUID: tc.uuid}).ID(); got != tc.want {
				t.Errorf("ID of %q: got %q, want %q", tc.uuid, got, tc.want)
			}
		})
	}
}

func TestUsable(t *testing.T) {
	for name, tc := range map[string]struct {
		memory Memory
		want   uint64
	}{
		"total less what is reserved": {Memory{Total: 100, Reserved: 30}, 70},
		"never below zero":            {Memory{Total: 100, Reserved: 130}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.memory.Usable(); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestSlug(t *testing.T) {
	for profile, want := range map[string]string{
		"1g.10gb":        "1g-10gb",
		"1g.10gb+me":     "1g-10gb-me",
		"1g.24gb-me":     "1g-24gb-no-me",
		"1g.24gb+me.all": "1g-24gb-me-all",
	} {
		t.Run(profile, func(t *testing.T) {
			if got := (Partition{Profile: profile}).Slug(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
