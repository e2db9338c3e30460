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

	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/api/v1alpha1"
)

// LoadNodeConfig reads the file anew and picks what is for a node with these
// labels, complete and valid. The error names the file, the document, the field
// and the value.
func (c *Config) LoadNodeConfig(labels map[string]string) (*v1alpha1.NodeConfig, error) {
	var configs []v1alpha1.NodeConfig
	if c.NodeConfig != "" {
		raw, err := os.ReadFile(c.NodeConfig)
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		if configs, err = v1alpha1.DecodeNodeConfigs(raw); err != nil {
			return nil, fmt.Errorf("--config %s: %w", c.NodeConfig, err)
		}
	}
	config, err := v1alpha1.SelectNodeConfig(configs, labels)
	if err != nil {
		return nil, fmt.Errorf("--config %s: %w", c.NodeConfig, err)
	}
	// Copies: a quantity keeps how it is printed, and the caller may do so at
	// any time.
	if c.MemoryMin != nil {
		config.Defaults.Memory.Min = ptr.To(c.MemoryMin.DeepCopy())
	}
	if c.MemoryStep != nil {
		config.Defaults.Memory.Step = ptr.To(c.MemoryStep.DeepCopy())
	}
	return config, nil
}
