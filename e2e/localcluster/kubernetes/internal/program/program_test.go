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

package program

import (
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	var ran string
	set := Set{
		"kubectl": func() { ran = "kubectl" },
		"kubelet": func() { ran = "kubelet" },
	}
	for _, tt := range []struct {
		name string
		args []string
		ran  string
		rest []string
		err  string
	}{
		{"by symlink", []string{"/bin/kubectl", "get", "pods"}, "kubectl", []string{"/bin/kubectl", "get", "pods"}, ""},
		{"by first argument", []string{"kube", "kubelet", "--v=2"}, "kubelet", []string{"kubelet", "--v=2"}, ""},
		{"symlink wins over the argument", []string{"kubectl", "kubelet"}, "kubectl", []string{"kubectl", "kubelet"}, ""},
		{"nothing named", []string{"kube"}, "", nil, "one of kubectl, kubelet"},
		{"unknown", []string{"kube", "kubeadm"}, "", nil, `no program "kubeadm": the first argument must be one of kubectl, kubelet`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ran = ""
			run, rest, err := set.Choose(tt.args)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			run()
			if ran != tt.ran || !slices.Equal(rest, tt.rest) {
				t.Errorf("ran %q with %q, want %q with %q", ran, rest, tt.ran, tt.rest)
			}
		})
	}
}
