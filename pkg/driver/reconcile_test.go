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

package driver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

func TestRemoveMetadata(t *testing.T) {
	const uid, later, other = "1111", "2222", "3333"
	gone := kubeletplugin.NamespacedObject{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "claim"}, UID: uid}
	for name, tc := range map[string]struct {
		owner string // UID in the metadata of claim ns/claim
		want  []string
	}{
		"of the claim":                    {owner: uid, want: []string{"cdi/gpu.memslice.dev_metadata_3333_gpu.json"}},
		"of a later claim with that name": {owner: later, want: []string{"cdi/gpu.memslice.dev_metadata_3333_gpu.json", "metadata/ns_claim/gpu/metadata.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			write := func(path, content string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			metadata := filepath.Join(cfg.PluginDir(), "dra-device-metadata")
			write(filepath.Join(metadata, "ns_claim", "gpu", "metadata.json"), `{"kind": "DeviceMetadata", "metadata": {"uid": "`+tc.owner+`"}}`)
			write(filepath.Join(cfg.CDIRoot, "gpu.memslice.dev_metadata_"+uid+"_gpu.json"), "{}")
			write(filepath.Join(cfg.CDIRoot, "gpu.memslice.dev_metadata_"+other+"_gpu.json"), "{}")

			for range 2 { // also when nothing is there any more
				if err := removeMetadata(cfg, gone); err != nil {
					t.Fatal(err)
				}
			}
			var left []string
			for name, dir := range map[string]string{"cdi": cfg.CDIRoot, "metadata": metadata} {
				err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
					if err == nil && !entry.IsDir() {
						rel, relErr := filepath.Rel(dir, path)
						left, err = append(left, filepath.Join(name, rel)), relErr
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			slices.Sort(left)
			if diff := cmp.Diff(tc.want, left); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
		})
	}
}
