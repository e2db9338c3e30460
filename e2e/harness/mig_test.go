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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCapabilities(t *testing.T) {
	const minors = "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi10/access 30\ngpu0/gi10/ci1/access 32\ngpu1/gi1/access 147\n"
	for name, tc := range map[string]struct {
		gpu      string
		instance Instance
		want     []string
		err      string
	}{
		"of the GPU instance and the compute instance": {"0", Instance{GPUInstance: 1}, []string{"/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"}, ""},
		"numbers are not their beginnings":             {"0", Instance{GPUInstance: 10, ComputeInstance: 1}, []string{"/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap32"}, ""},
		"one that is not listed":                       {"1", Instance{GPUInstance: 1}, nil, "want two"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := capabilitiesIn(minors, tc.gpu, tc.instance)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("got %v, want an error with %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("nodes differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlace(t *testing.T) {
	if got, want := (Instance{GPU: "GPU-0", Profile: "1g.10gb+me", Start: 3}).Place(), "GPU-0/1g.10gb+me/3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
