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
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRecoverClaims is a plugin that starts and finds what another one left.
func TestRecoverClaims(t *testing.T) {
	moved := share("1", "60Gi")
	moved.Status.Allocation.Devices.Results[0].Pool = "another-node"
	for name, tc := range map[string]struct {
		claim    *resourceapi.ResourceClaim // on the API server; nil for none
		record   string                     // what became of the record; empty if it is gone
		prepared bool
	}{
		"the record is damaged, the claim in use": {claim: share("1", "60Gi"), record: "{", prepared: true},
		"the record is lost, the claim in use":    {claim: share("1", "60Gi"), prepared: true},
		"the claim is gone":                       {},
		"the claim was made anew by that name":    {claim: renamed(share("2", "60Gi"), "claim-1")},
		"the claim is on another node by now":     {claim: moved},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			var claims []*resourceapi.ResourceClaim
			if tc.claim != nil {
				claims = append(claims, tc.claim)
			}
			metadata := filepath.Join(metadataDir(cfg, types.NamespacedName{Namespace: "default", Name: "claim-1"}), "gpu", metadataFile)
			put(t, metadata, `{"metadata": {"namespace": "default", "name": "claim-1", "uid": "1"}}`)
			put(t, filepath.Join(cfg.PluginDir(), "dra-device-metadata", "default_odd", "gpu", metadataFile), `{"metadata": {"namespace": "..", "name": "..", "uid": "1"}}`)
			if tc.record != "" {
				put(t, filepath.Join(cfg.StateDir(), "1.json"), tc.record)
			}
			client, devices, preparer, written := newParts(t, cfg, nil, claims...)

			err := recoverClaims(t.Context(), cfg, client, devices, preparer)
			if err == nil || !strings.Contains(err.Error(), "default_odd") || strings.Contains(err.Error(), "claim-1") {
				t.Errorf("got %v, want only the misplaced file to be reported", err)
			}
			if written.written["1"] != tc.prepared {
				t.Errorf("CDI spec: %t, want %t", written.written["1"], tc.prepared)
			}
			if known, err := preparer.Knows(t.Context(), "1"); known != tc.prepared || err != nil {
				t.Errorf("recorded: %t, error %v, want %t", known, err, tc.prepared)
			}
			if _, err := os.Stat(metadata); (err == nil) != tc.prepared {
				t.Errorf("metadata: %v, want it to be there: %t", err, tc.prepared)
			}
		})
	}
}

// TestRecoverClaimsLeavesTheUnprepared is the time between the end of a claim
// and that of its metadata.
func TestRecoverClaimsLeavesTheUnprepared(t *testing.T) {
	cfg := testConfig(t)
	put(t, filepath.Join(metadataDir(cfg, types.NamespacedName{Namespace: "default", Name: "claim-1"}), "gpu", metadataFile),
		`{"metadata": {"namespace": "default", "name": "claim-1", "uid": "1"}}`)
	client, devices, preparer, written := newParts(t, cfg, nil, share("1", "60Gi"))
	if err := preparer.Unprepare(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if err := recoverClaims(t.Context(), cfg, client, devices, preparer); err != nil || len(written.written) != 0 {
		t.Errorf("error %v, CDI specs %v, want none", err, written.written)
	}
}

func renamed(c *resourceapi.ResourceClaim, name string) *resourceapi.ResourceClaim {
	c.Name = name
	return c
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
