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

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func TestLoadNodeConfig(t *testing.T) {
	const document = "apiVersion: memslice.dev/v1alpha1\nkind: NodeConfig\n"
	for name, tc := range map[string]struct {
		text      string // of the file; empty for no file
		args      []string
		env       map[string]string
		min, step string
		problem   []string
	}{
		"no file":              {min: "256Mi", step: "1Mi"},
		"no file, with flags":  {args: []string{"--memory-min=1Gi"}, min: "1Gi", step: "1Mi"},
		"the file":             {text: document + "defaults: {memory: {min: 2Gi, step: 3Mi}}", min: "2Gi", step: "3Mi"},
		"a flag over the file": {text: document + "defaults: {memory: {min: 2Gi, step: 3Mi}}", args: []string{"--memory-step=5Mi"}, min: "2Gi", step: "5Mi"},
		"a variable, likewise": {text: document + "defaults: {memory: {min: 2Gi}}", env: map[string]string{"MEMSLICE_MEMORY_MIN": "4Gi"}, min: "4Gi", step: "1Mi"},
		"an empty file":        {text: "#\n", min: "256Mi", step: "1Mi"},
		"for other nodes":      {text: document + "nodeSelector: {matchLabels: {a: b}}\ndefaults: {memory: {min: 2Gi}}", min: "256Mi", step: "1Mi"},
		"for this node":        {text: document + "nodeSelector: {matchLabels: {pool: x}}\ndefaults: {memory: {min: 2Gi}}", min: "2Gi", step: "1Mi"},
		"a wrong file":         {text: document + "defaults: {memory: {mini: 2Gi}}", problem: []string{"--config", "config.yaml", "document 1", `unknown field "defaults.memory.mini"`}},
		"a wrong second document": {
			text:    document + "nodeSelector: {matchLabels: {pool: x}}\n---\n" + document + "gpus: [{offer: [Slice, Mig]}]",
			problem: []string{"--config", "config.yaml: document 2: gpus[0].offer[1]: Unsupported value: \"Mig\": supported values: \"Slice\", \"GPU\", \"MIG\""},
		},
		"a rule over a flag":       {text: document + "gpus: [{memory: {min: 2Gi}}]", args: []string{"--memory-min=1Gi"}, min: "2Gi", step: "1Mi"},
		"a file that is not there": {args: []string{"--config=/no/such/file"}, problem: []string{"--config", "/no/such/file", "no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Default()
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			cfg.AddFlags(fs)
			if tc.text != "" {
				path := filepath.Join(t.TempDir(), "config.yaml")
				if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
					t.Fatal(err)
				}
				tc.args = append(tc.args, "--config="+path)
			}
			if err := fs.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			if err := FromEnvironment(fs, func(name string) (string, bool) { v, ok := tc.env[name]; return v, ok }); err != nil {
				t.Fatal(err)
			}
			got, err := cfg.LoadNodeConfig(map[string]string{"pool": "x"})
			if tc.problem != nil {
				for _, part := range tc.problem {
					if err == nil || strings.Count(err.Error(), part) != 1 {
						t.Errorf("error %v, want %q in it once", err, part)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			memory := got.For("GPU-0", "any", "any").Memory
			if min, step := memory.Min.String(), memory.Step.String(); min != tc.min || step != tc.step {
				t.Errorf("got min %s and step %s, want %s and %s", min, step, tc.min, tc.step)
			}
		})
	}
}

// The file is read each time, and what is made of it is the caller's.
func TestLoadNodeConfigAnew(t *testing.T) {
	cfg := Default()
	cfg.NodeConfig = filepath.Join(t.TempDir(), "config.yaml")
	cfg.MemoryMin = ptr.To(resource.MustParse("1Gi"))
	for _, ranks := range []int32{1, 2} {
		text := fmt.Sprintf("apiVersion: memslice.dev/v1alpha1\nkind: NodeConfig\ndefaults: {ranks: %d}\n", ranks)
		if err := os.WriteFile(cfg.NodeConfig, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := cfg.LoadNodeConfig(nil)
		if err != nil || *got.Defaults.Ranks != ranks || got.Defaults.Memory.Min.String() != "1Gi" {
			t.Errorf("got %+v and error %v, want %d ranks and a minimum of 1Gi", got, err, ranks)
			continue
		}
		got.Defaults.Memory.Min.Set(1)
	}
}
