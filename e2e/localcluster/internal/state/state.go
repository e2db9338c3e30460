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

// Package state remembers, in one file, what was chosen for a cluster and what
// was changed on the machine for it.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/memslice/memslice/e2e/localcluster/internal/render"
)

// Node is what runs pods.
type Node string

// What can run pods.
const (
	Real Node = "real" // a kubelet and containerd
	None Node = "none" // nothing: the control plane only
)

// State of a cluster.
type State struct {
	render.Settings
	KubernetesVersion string `json:"kubernetesVersion"`
	Node              Node   `json:"node"`
	NodeReason        string `json:"nodeReason,omitempty"` // why there is no node
	Short             string `json:"short"`
	Boot              string `json:"boot"` // of the last up
	// MadeDirs did not exist before and go away with the cluster.
	MadeDirs []string `json:"madeDirs,omitempty"`
	// Sysctls are the values before the cluster, by path below /proc/sys.
	Sysctls map[string]string `json:"sysctls,omitempty"`
}

// Load returns nil when there is no cluster.
func Load(file string) (*State, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the cluster's state: %w", err)
	}
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read the cluster's state %s: %w: take the cluster down and bring it up again", file, err)
	}
	return &s, nil
}

// Save replaces the file as a whole; it holds tokens.
func (s *State) Save(file string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the cluster's state: %w", err)
	}
	return WriteFile(file, append(data, '\n'), 0o600)
}

// WriteFile writes a file so that it is never seen half-written, and makes its
// folder.
func WriteFile(file string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("create folder of %s: %w", file, err)
	}
	temp := file + ".tmp"
	if err := os.WriteFile(temp, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if err := os.Rename(temp, file); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
