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

package containerview

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/dynamic-resource-allocation/api/metadata"
)

const metadataText = `{
  "apiVersion": "metadata.resource.k8s.io/v1beta1",
  "kind": "DeviceMetadata",
  "metadata": {"name": "claim", "namespace": "default"},
  "requests": [{"name": "gpu/small", "devices": [{"driver": "gpu.example.com", "pool": "node", "name": "gpu-0",
    "attributes": {"grantedMemoryBytes": {"int": 5}}}]}]
}
`

func TestParse(t *testing.T) {
	file := metadata.ContainerDir + "/resourceclaims/claim/gpu/gpu.example.com-metadata.json"
	output := "PATH=/bin\nMEMSLICE_MEMORY_BYTES=5\r\nMEMSLICE_EMPTY=\n" +
		"@node /dev/nvidiactl\n@node /dev/nvidia3\n@node /dev/nvidia-caps/nvidia-cap7\n@file " + file + "\n" + metadataText + "@end\n"
	got, err := Parse(output)
	if err != nil {
		t.Fatal(err)
	}
	want := View{
		Env:         map[string]string{"MEMSLICE_MEMORY_BYTES": "5", "MEMSLICE_EMPTY": ""},
		DeviceNodes: []string{"/dev/nvidia-caps/nvidia-cap7", "/dev/nvidia3", "/dev/nvidiactl"},
		Metadata:    map[string]string{file: metadataText},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("view differs (-want +got):\n%s", diff)
	}
	devices, err := got.Devices("gpu")
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != 1 || devices[0].Name != "gpu-0" || *devices[0].Attributes["grantedMemoryBytes"].IntValue != 5 {
		t.Errorf("metadata of request gpu: %+v", devices)
	}
	if _, err := got.Devices("other"); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a request without metadata: got %v, want an error that names the files there are", err)
	}
}

func TestOutputThatBreaksOffIsRefused(t *testing.T) {
	if _, err := Parse("MEMSLICE_MEMORY_BYTES=5\n"); err == nil || !strings.Contains(err.Error(), "MEMSLICE_MEMORY_BYTES=5") {
		t.Errorf("got %v, want an error with the output", err)
	}
}

func TestScriptRuns(t *testing.T) {
	command := exec.Command("sh", "-c", Script())
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "MEMSLICE_GPU_UUID_A=GPU-1"}
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	view, err := Parse(string(output))
	if err != nil {
		t.Fatal(err)
	}
	if view.Env["MEMSLICE_GPU_UUID_A"] != "GPU-1" {
		t.Errorf("variables: %v", view.Env)
	}
}

func TestNodes(t *testing.T) {
	view := View{DeviceNodes: []string{"/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia12", "/dev/nvidiactl"}}
	if diff := cmp.Diff([]string{"/dev/nvidia0", "/dev/nvidia12"}, view.GPUNodes()); diff != "" {
		t.Errorf("GPUs' nodes differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/dev/nvidia-caps/nvidia-cap12"}, view.CapabilityNodes()); diff != "" {
		t.Errorf("capability nodes differ (-want +got):\n%s", diff)
	}
}

func TestBytes(t *testing.T) {
	view := View{Env: map[string]string{"GOOD": "84979744768", "BAD": "4Gi"}}
	if got, err := view.Bytes("GOOD"); err != nil || got != 84979744768 {
		t.Errorf("got %d, %v", got, err)
	}
	for variable, word := range map[string]string{"BAD": `"4Gi" is not a number`, "NONE": "it has BAD, GOOD"} {
		if _, err := view.Bytes(variable); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("variable %s: got %v, want an error with %q", variable, err, word)
		}
	}
}

func TestFromCDI(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "metadata.json")
	inside := metadata.ContainerDir + "/resourceclaims/claim/gpu/gpu.example.com-metadata.json"
	write(t, file, metadataText)
	specs := filepath.Join(dir, "cdi")
	write(t, filepath.Join(specs, "claim.json"), fmt.Sprintf(`{"cdiVersion": "0.8.0", "kind": "gpu.example.com/claim", "devices": [
		{"name": "a", "containerEdits": {"env": ["MEMSLICE_A=1", "OTHER=2"],
		  "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/null"}, {"path": "/dev/null"}],
		  "mounts": [{"hostPath": %q, "containerPath": %q}, {"hostPath": "/lib", "containerPath": "/lib"}]}},
		{"name": "unmounted", "containerEdits": {"mounts": [{"hostPath": "/nowhere/file", "containerPath": %[2]q}]}}]}`, file, inside))
	write(t, filepath.Join(specs, "damaged.json"), "{")

	got, err := FromCDI(specs, []string{"gpu.example.com/claim=a"})
	if err != nil {
		t.Fatal(err)
	}
	want := View{
		Env: map[string]string{"MEMSLICE_A": "1"}, DeviceNodes: []string{"/dev/nvidia0"}, Metadata: map[string]string{inside: metadataText},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("view differs (-want +got):\n%s", diff)
	}
	for device, words := range map[string][]string{
		"gpu.example.com/claim=b":         {"gpu.example.com/claim=b", "damaged.json"},
		"gpu.example.com/claim=unmounted": {"would not start", "/nowhere/file"},
	} {
		_, err := FromCDI(specs, []string{device})
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("device %s: got %v, want an error with %q", device, err, word)
			}
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
