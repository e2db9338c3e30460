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
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strict "sigs.k8s.io/json"
)

// DecodeNodeConfigs reads the documents of a file in YAML, of which JSON is a
// part, as strictly as [DecodeShareConfig] does, fills in what they leave out and
// validates them. The error names the document, counted from 1, and the path in
// it. Documents without content are skipped, and an empty file has none.
func DecodeNodeConfigs(raw []byte) ([]NodeConfig, error) {
	var configs []NodeConfig
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	for number := 1; ; number++ {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return configs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: not YAML: %w", number, err)
		}
		config, err := decodeNodeConfig(&document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		if config == nil {
			continue
		}
		configs = append(configs, *config)
	}
}

// decodeNodeConfig is nil for a document without content.
func decodeNodeConfig(document *yaml.Node) (*NodeConfig, error) {
	// The decoders report these without a path, or not at all.
	if errs := duplicates(document, ""); len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	var content any
	if err := document.Decode(&content); err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	if content == nil {
		return nil, nil
	}
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("not YAML that can be written as JSON: %w", err)
	}
	if errs := notAmounts(raw); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	var config NodeConfig
	if err := decode(raw, &config, &config.TypeMeta, NodeConfigKind); err != nil {
		return nil, err
	}
	config.Default()
	if errs := config.Validate(nil); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return &config, nil
}

// duplicates are the fields that are set twice, by their paths.
func duplicates(n *yaml.Node, at string) (errs []error) {
	switch n.Kind {
	case yaml.DocumentNode:
		return duplicates(n.Content[0], at)
	case yaml.SequenceNode:
		for i, element := range n.Content {
			errs = append(errs, duplicates(element, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case yaml.MappingNode:
		seen := sets.New[string]()
		for entry := range slices.Chunk(n.Content, 2) {
			key, value := entry[0], entry[1]
			path := strings.TrimPrefix(at+"."+key.Value, ".")
			if seen.Has(key.Value) {
				errs = append(errs, fmt.Errorf("duplicate field %q in line %d", path, key.Line))
			}
			seen.Insert(key.Value)
			errs = append(errs, duplicates(value, path)...)
		}
	}
	return errs
}

func isAmount(s string) bool {
	if !amount.MatchString(s) {
		return false
	}
	_, err := resource.ParseQuantity(s)
	return err == nil
}

// amount is a quantity without an exponent that would keep its parser busy for
// hours.
var amount = regexp.MustCompile(`^[+-]?[0-9.]+([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})$`)

// notAmounts are the amounts of memory that are no quantities. The decoder's own
// error for these has no path.
func notAmounts(raw []byte) (errs field.ErrorList) {
	type config struct {
		Memory map[string]json.RawMessage `json:"memory"`
	}
	var found struct {
		Defaults config   `json:"defaults"`
		GPUs     []config `json:"gpus"`
	}
	if err := strict.UnmarshalCaseSensitivePreserveInts(raw, &found); err != nil {
		return nil // which decode reports
	}
	look := func(at *field.Path, c config) {
		for _, name := range slices.Sorted(maps.Keys(c.Memory)) {
			value := string(c.Memory[name])
			if value == "null" {
				continue
			}
			value = strings.Trim(value, `"`)
			if !isAmount(value) {
				errs = append(errs, field.Invalid(at.Child("memory", name), value, "must be an amount of bytes, as in 256Mi, 1Gi or 1G"))
			}
		}
	}
	look(field.NewPath("defaults"), found.Defaults)
	for i, c := range found.GPUs {
		look(field.NewPath("gpus").Index(i), c)
	}
	return errs
}
