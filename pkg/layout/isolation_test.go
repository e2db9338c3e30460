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

package layout

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
)

func TestIsolation(t *testing.T) {
	for name, tc := range map[string]struct {
		limits   bool // the driver can
		memory   v1alpha1.Isolation
		required bool
		want     gpu.Isolation
		refused  string // why no shares are offered
	}{
		"the strongest that there is":         {limits: true, want: gpu.IsolationCgroup},
		"none, where there is none":           {want: gpu.IsolationNone},
		"as configured":                       {limits: true, memory: v1alpha1.IsolationCgroup, want: gpu.IsolationCgroup},
		"as configured, which it has not":     {memory: v1alpha1.IsolationCgroup, refused: "isolation.memory is Cgroup"},
		"none, as configured":                 {limits: true, memory: v1alpha1.IsolationNone, want: gpu.IsolationNone},
		"required, and there":                 {limits: true, required: true, want: gpu.IsolationCgroup},
		"required, and not there":             {required: true, refused: "isolation.required is true"},
		"required by name, and not there":     {memory: v1alpha1.IsolationCgroup, required: true, refused: "isolation.memory is Cgroup"},
		"required by name, and there as well": {limits: true, memory: v1alpha1.IsolationCgroup, required: true, want: gpu.IsolationCgroup},
	} {
		t.Run(name, func(t *testing.T) {
			g := card()
			g.MemoryLimits, g.DriverVersion = tc.limits, "580.95.05"
			c := config(func(c *v1alpha1.GPUConfig) {
				c.Isolation.Required = ptr.To(tc.required)
				if tc.memory != "" {
					c.Isolation.Memory = tc.memory
				}
			})
			l := Decide(Input{Node: "node", Config: c, GPUs: []gpu.GPU{g}})
			offer := l.Offers[0]
			if offered := tc.refused == ""; offer.Shares != offered || !offer.Whole {
				t.Errorf("shares offered: %t, the whole: %t", offer.Shares, offer.Whole)
			}
			if tc.refused != "" {
				if text := fmt.Sprint(l.Problems); len(l.Problems) != 1 || !strings.Contains(text, tc.refused) || !strings.Contains(text, "580.95.05") || !strings.Contains(text, g.UUID) {
					t.Errorf("problems: %s", text)
				}
				return
			}
			if len(l.Problems) > 0 || offer.Isolation != tc.want || offer.MustIsolate != tc.required {
				t.Errorf("isolation %q, must isolate: %t, problems %v", offer.Isolation, offer.MustIsolate, l.Problems)
			}
		})
	}
}

// Shares that are held stay until they have ended.
func TestIsolationWhileHeld(t *testing.T) {
	g := card()
	held := map[string][]gpu.Grant{uuid: {grant("node", slice, gpu.Slice)}}
	c := config(func(c *v1alpha1.GPUConfig) { c.Isolation.Required = ptr.To(true) })
	l := Decide(Input{Node: "node", Config: c, GPUs: []gpu.GPU{g}, Held: held})
	if o := l.Offers[0]; !o.Shares || o.Withheld != gpu.Draining {
		t.Errorf("the offer is %+v", o)
	}
	if text := fmt.Sprint(l.Problems); !strings.Contains(text, "isolation.required is true") || !strings.Contains(text, "have ended") {
		t.Errorf("problems: %s", text)
	}
}
