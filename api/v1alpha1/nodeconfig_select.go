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

package v1alpha1

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// SelectNodeConfig is the first document for a node with these labels. Where
// there is none, everything has its default. It fails only for a selector that
// Validate refuses.
func SelectNodeConfig(configs []NodeConfig, nodeLabels map[string]string) (*NodeConfig, error) {
	for i := range configs {
		if configs[i].NodeSelector == nil {
			return &configs[i], nil
		}
		selector, err := metav1.LabelSelectorAsSelector(configs[i].NodeSelector)
		if err != nil {
			return nil, fmt.Errorf("nodeSelector: %w", err)
		}
		if selector.Matches(labels.Set(nodeLabels)) {
			return &configs[i], nil
		}
	}
	var none NodeConfig
	none.Default()
	return &none, nil
}

// Default fills in what was left out of the defaults. What a rule leaves out is
// filled in by For.
func (c *NodeConfig) Default() {
	c.Defaults = c.Defaults.or(GPUConfig{
		Offer: []Form{FormSlice, FormGPU},
		Memory: MemoryConfig{
			Min:     ptr.To(resource.MustParse("256Mi")),
			Step:    ptr.To(resource.MustParse("1Mi")),
			Reserve: ptr.To(resource.MustParse("0")),
		},
		Ranks: ptr.To[int32](maxRanks),
		MIG:   MIGConfig{Mode: MIGKeep},
		Isolation: IsolationConfig{
			Memory: IsolationAny, Required: ptr.To(false), OnOverUse: OverUseReport,
		},
	})
}

// For is the configuration of a GPU: that of the first rule that matches, and
// for the rest the defaults. It is complete if these are.
func (c *NodeConfig) For(uuid, product, architecture string) GPUConfig {
	for _, rule := range c.GPUs {
		if rule.Match.matches(uuid, product, architecture) {
			return rule.or(c.Defaults)
		}
	}
	return c.Defaults
}

func (m *GPUMatch) matches(uuid, product, architecture string) bool {
	one := func(entries []string, is func(string) bool) bool {
		return len(entries) == 0 || slices.ContainsFunc(entries, is)
	}
	return one(m.UUIDs, func(s string) bool { return s == uuid }) &&
		one(m.Architectures, func(s string) bool { return strings.EqualFold(s, architecture) }) &&
		one(m.Products, func(s string) bool {
			matched, err := path.Match(s, product)
			return s == product || err == nil && matched
		})
}

// or is c with what it leaves out taken from other, field by field.
func (c GPUConfig) or(other GPUConfig) GPUConfig {
	if c.Offer == nil {
		c.Offer = other.Offer
	}
	c.Memory.Min = cmp.Or(c.Memory.Min, other.Memory.Min)
	c.Memory.Step = cmp.Or(c.Memory.Step, other.Memory.Step)
	c.Memory.Reserve = cmp.Or(c.Memory.Reserve, other.Memory.Reserve)
	c.Ranks = cmp.Or(c.Ranks, other.Ranks)
	c.MIG.Mode = cmp.Or(c.MIG.Mode, other.MIG.Mode)
	if c.MIG.Profiles == nil {
		c.MIG.Profiles = other.MIG.Profiles
	}
	c.Isolation.Memory = cmp.Or(c.Isolation.Memory, other.Isolation.Memory)
	c.Isolation.Required = cmp.Or(c.Isolation.Required, other.Isolation.Required)
	c.Isolation.OnOverUse = cmp.Or(c.Isolation.OnOverUse, other.Isolation.OnOverUse)
	return c
}
