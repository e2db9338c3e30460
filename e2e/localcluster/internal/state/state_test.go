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

package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/localcluster/internal/render"
)

func TestSaveAndLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "state.json")
	if s, err := Load(file); s != nil || err != nil {
		t.Fatalf("without a file: %v, %v", s, err)
	}
	want := &State{
		Settings:          render.Settings{NodeName: "n", Ports: render.Ports{APIServer: 1}, Tokens: render.Tokens{Admin: "t"}, Subnet: 3},
		KubernetesVersion: "1.2.3", Node: Real, Short: "/run/x", Boot: "b",
		MadeDirs: []string{"/d"}, Sysctls: map[string]string{"kernel/panic": "0"},
	}
	if err := want.Save(file); err != nil {
		t.Fatal(err)
	}
	got, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// It holds tokens.
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestDamagedState(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(file, []byte(`{"node": "re`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(file)
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "take the cluster down") {
		t.Errorf("the error names neither file nor remedy: %v", err)
	}
}
