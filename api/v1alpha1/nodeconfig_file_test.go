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
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/memslice/memslice/pkg/golden"
)

// The example has every field, and means what the file beside it says.
func TestExample(t *testing.T) {
	raw, err := os.ReadFile("testdata/nodeconfig.yaml")
	if err != nil {
		t.Fatal(err)
	}
	configs, err := DecodeNodeConfigs(raw)
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]bool{}
	for _, c := range configs {
		fields(reflect.ValueOf(c), "", set)
	}
	for name, isSet := range set {
		if !isSet {
			t.Errorf("the example does not show %s", name)
		}
	}
	got, err := yaml.Marshal(configs)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/nodeconfig.complete.yaml", got)
}

// fields notes of each field of the API's types whether it has a value anywhere.
func fields(v reflect.Value, name string, set map[string]bool) {
	switch {
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			fields(v.Index(i), name, set)
		}
	case v.Kind() == reflect.Struct && v.Type().PkgPath() == reflect.TypeFor[NodeConfig]().PkgPath():
		for i := range v.NumField() {
			fields(v.Field(i), v.Type().Name()+"."+v.Type().Field(i).Name, set)
		}
	default:
		set[name] = set[name] || !v.IsZero()
	}
}

// FuzzDecodeNodeConfigs: whatever is accepted is complete for every GPU, can be
// chosen by labels, and survives a round trip.
func FuzzDecodeNodeConfigs(f *testing.F) {
	f.Add([]byte(header + "gpus: [{match: {products: ['*']}, offer: [MIG], mig: {mode: Enabled, profiles: [1g.10gb]}}]"))
	f.Add([]byte(header + "---\n" + header + "defaults: {memory: {min: 1e3, step: 1Ki}}"))
	f.Add([]byte(header + "nodeSelector: {matchExpressions: [{key: a, operator: In, values: [b]}]}\ngpus: [&a {ranks: 1}, {<<: *a}]"))
	f.Add([]byte(`{"apiVersion": "memslice.dev/v1alpha1", "kind": "NodeConfig", "defaults": {"ranks": 3, "ranks": 3}}`))
	f.Add([]byte(`{"a": [[[[`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		configs, err := DecodeNodeConfigs(raw)
		if err != nil {
			return
		}
		if _, err := SelectNodeConfig(configs, map[string]string{"a": "b"}); err != nil {
			t.Error(err)
		}
		for i := range configs {
			c := configs[i].For("GPU-0", "x", "y")
			if len(c.Offer) == 0 || c.Memory.Min.Value() <= 0 || c.Memory.Step.Value() <= 0 || c.Memory.Reserve.Value() < 0 || *c.Ranks < 0 || *c.Ranks > 7 || c.MIG.Mode == "" {
				t.Errorf("an incomplete configuration was accepted: %+v", c)
			}
			encoded, err := json.Marshal(configs[i])
			if err != nil {
				t.Fatal(err)
			}
			again, err := DecodeNodeConfigs(encoded)
			if err != nil {
				t.Fatalf("%s: %v", encoded, err)
			}
			if diff := cmp.Diff(configs[i:i+1], again, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("after a round trip (-want +got):\n%s", diff)
			}
		}
	})
}
