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
	"bytes"
	"strings"
	"testing"

	"github.com/memslice/memslice/pkg/golden"
)

func TestOutput(t *testing.T) {
	r := &Result{KubernetesVersion: "1.37.2", CPUs: 2, Nodes: 100, GPUsPerNode: 8, Pods: 100, Rounds: 3, Rows: []Row{
		{Layout: "shares", Publishes: "shares, no ranks", Claim: "4Gi", DevicesPerNode: 8, SlicesPerNode: 2, Fills: []Fill{
			{FullGPUs: 0, Samples: []Sample{{48, 9.04}, {50.26, 9.2}, {52, 9.6}}},
			{FullGPUs: 4, Samples: []Sample{{31, 15}, {30, 16}, {29, 17}}},
		}},
		{Layout: "mig", Publishes: "shares, the whole and all MIG profiles", Claim: "4Gi", DevicesPerNode: 216, SlicesPerNode: 17, Fills: []Fill{
			{FullGPUs: 0, Samples: []Sample{{12, 40}, {11, 44}, {26, 31}}},
			{FullGPUs: 4, Samples: []Sample{{6, 80}, {5, 90}, {4, 100}}},
		}},
		{Layout: "mig", Publishes: "shares, the whole and all MIG profiles", Claim: "a 1g.10gb", DevicesPerNode: 216, SlicesPerNode: 17, Fills: []Fill{
			{FullGPUs: 0, Samples: []Sample{{12, 40}, {11, 44}, {26, 31}}},
			{FullGPUs: 4, Samples: []Sample{{6, 80}, {5, 90}, {4, 100}}},
		}},
	}}
	r.summarize()
	for _, output := range []string{"table", "markdown", "json"} {
		t.Run(output, func(t *testing.T) {
			write, err := writer(output)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := write(&out, r); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/result."+output, out.Bytes())
		})
	}
}

func TestOutputRefused(t *testing.T) {
	if _, err := writer("yaml"); err == nil || !strings.Contains(err.Error(), "--output=yaml") {
		t.Errorf("got error %v, want one that names --output=yaml", err)
	}
}
