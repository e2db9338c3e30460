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
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/memslice/memslice/e2e/containerview"
	"github.com/memslice/memslice/e2e/harness"
	"github.com/memslice/memslice/pkg/golden"
)

const uuid = "GPU-15b06b5e-3097-84b4-f852-302896a7d3fd"

func newResult() *Result {
	return &Result{
		KubernetesVersion: "1.37.2", Kubeconfig: "/clone/_output/cluster/kubeconfig", Namespace: namespace, kubectl: "/clone/_output/bin/kubectl",
		Pods: []Row{{
			Pod: "shares-8599f9f9b5-7rl8b", Node: "localhost", Device: "gpu-15b06b5e-3097-slice",
			GPU:     GPU{UUID: uuid, ID: "15b06b5e-3097", Product: "NVIDIA H100 80GB HBM3"},
			Granted: Granted{Bytes: 4 << 30, Quantity: "4Gi"},
			Sees:    Sees{MemoryBytes: 4 << 30, UUID: uuid, DeviceNodes: []string{"/dev/nvidia0"}},
		}},
	}
}

func TestTable(t *testing.T) {
	emulated := newResult()
	emulated.NoContainers = "the kubelet needs root"
	for name, result := range map[string]*Result{"containers": newResult(), "no-containers": emulated} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", "") // no kubectl of the machine's
			write, err := writer("table")
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := write(&out, result); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", name+".txt"), []byte(out.String()))
		})
	}
}

func TestFormatsForPrograms(t *testing.T) {
	for format, decode := range map[string]func([]byte, *Result) error{
		"json": func(text []byte, r *Result) error { return json.Unmarshal(text, r) },
		"yaml": func(text []byte, r *Result) error { return yaml.UnmarshalStrict(text, r) },
	} {
		t.Run(format, func(t *testing.T) {
			write, err := writer(format)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			want := newResult()
			if err := write(&out, want); err != nil {
				t.Fatal(err)
			}
			var got Result
			if err := decode([]byte(out.String()), &got); err != nil {
				t.Fatal(err)
			}
			got.kubectl = want.kubectl // not part of it
			if diff := cmp.Diff(*want, got, cmp.AllowUnexported(Result{})); diff != "" {
				t.Errorf("what was written reads otherwise (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownFormat(t *testing.T) {
	if _, err := writer("xml"); err == nil || !strings.Contains(err.Error(), "--output=xml: must be table, json or yaml") {
		t.Errorf("got %v", err)
	}
}

func TestCompare(t *testing.T) {
	grant := harness.Grant{Request: "gpu", Memory: 4 << 30, Device: harness.Device{UUID: uuid}}
	view := func(bytes, uuid, node string) containerview.View {
		return containerview.View{
			Env:         map[string]string{"MEMSLICE_MEMORY_BYTES_GPU": bytes, "MEMSLICE_GPU_UUID_GPU": uuid},
			DeviceNodes: []string{"/dev/nvidiactl", node},
		}
	}
	for name, tc := range map[string]struct {
		view containerview.View
		want string // in the error; empty for none
	}{
		"as granted":    {view("4294967296", uuid, "/dev/nvidia0"), ""},
		"other amount":  {view("4294967295", uuid, "/dev/nvidia0"), "told of 4294967295 bytes, granted were 4294967296"},
		"other GPU":     {view("4294967296", "GPU-x", "/dev/nvidia0"), `told of GPU "GPU-x"`},
		"other node":    {view("4294967296", uuid, "/dev/nvidia1"), `device nodes ["/dev/nvidia1"], granted was /dev/nvidia0`},
		"not told":      {containerview.View{}, "no variable MEMSLICE_MEMORY_BYTES_GPU"},
		"not a number":  {view("4Gi", uuid, "/dev/nvidia0"), "not a number of bytes"},
		"one GPU extra": {containerview.View{Env: view("4294967296", uuid, "").Env, DeviceNodes: []string{"/dev/nvidia0", "/dev/nvidia1"}}, "granted was /dev/nvidia0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := compare(grant, "/dev/nvidia0", tc.view)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}
