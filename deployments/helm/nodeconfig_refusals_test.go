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

package chart_test

import (
	"testing"

	"github.com/memslice/memslice/api/v1alpha1"
)

// What the chart refuses the plugin refuses, too, or takes for something else
// than what it looks like.
func TestNodeConfigRefusals(t *testing.T) {
	for _, test := range []struct {
		name, value, want string
		chart             bool // the chart alone
	}{
		{name: "unknown field", value: `{"default":{}}`, want: "at '/nodeConfig': additional properties 'default' not allowed"},
		{name: "kind", value: `{"kind":"NodeConfig"}`, want: "additional properties 'kind' not allowed", chart: true},
		{name: "selector of all nodes' document", value: `{"nodeSelector":{"matchLabels":{"a":"b"}}}`, want: "additional properties 'nodeSelector' not allowed", chart: true},
		{name: "unknown field of a GPU", value: `{"defaults":{"offers":["MIG"]}}`, want: "at '/nodeConfig/defaults': additional properties 'offers' not allowed"},
		{name: "unknown field of a rule", value: `{"gpus":[{"matches":{}}]}`, want: "at '/nodeConfig/gpus/0': additional properties 'matches' not allowed"},
		{name: "unknown field of a match", value: `{"gpus":[{"match":{"product":["a"]}}]}`, want: "at '/nodeConfig/gpus/0/match': additional properties 'product' not allowed"},
		{name: "field in another case", value: `{"defaults":{"Ranks":1}}`, want: "additional properties 'Ranks' not allowed"},
		{name: "unknown form", value: `{"defaults":{"offer":["slice"]}}`, want: "at '/nodeConfig/defaults/offer/0': value must be one of 'Slice', 'GPU', 'MIG'"},
		{name: "form twice", value: `{"defaults":{"offer":["MIG","MIG"]}}`, want: "at '/nodeConfig/defaults/offer'"},
		{name: "no form", value: `{"defaults":{"offer":[]}}`, want: "at '/nodeConfig/defaults/offer': minItems: got 0, want 1", chart: true},
		{name: "no quantity", value: `{"defaults":{"memory":{"min":"256MB"}}}`, want: "at '/nodeConfig/defaults/memory/min'"},
		{name: "nothing for a share", value: `{"defaults":{"memory":{"min":"0Mi"}}}`, want: "at '/nodeConfig/defaults/memory/min'"},
		{name: "negative step", value: `{"defaults":{"memory":{"step":"-1Mi"}}}`, want: "at '/nodeConfig/defaults/memory/step'"},
		{name: "fractions of a byte", value: `{"defaults":{"memory":{"step":"500m"}}}`, want: "at '/nodeConfig/defaults/memory/step'"},
		{name: "negative reserve", value: `{"defaults":{"memory":{"reserve":-1}}}`, want: "at '/nodeConfig/defaults/memory/reserve'"},
		{name: "too many ranks", value: `{"defaults":{"ranks":8}}`, want: "at '/nodeConfig/defaults/ranks': maximum: got 8, want 7"},
		{name: "negative ranks", value: `{"gpus":[{"ranks":-1}]}`, want: "at '/nodeConfig/gpus/0/ranks': minimum: got -1, want 0"},
		{name: "part of a rank", value: `{"defaults":{"ranks":1.5}}`, want: "at '/nodeConfig/defaults/ranks'"},
		{name: "unknown mode", value: `{"defaults":{"mig":{"mode":"On"}}}`, want: "at '/nodeConfig/defaults/mig/mode': value must be one of 'Keep', 'Enabled', 'OnDemand'"},
		{name: "no profile", value: `{"defaults":{"mig":{"profiles":["10gb"]}}}`, want: "at '/nodeConfig/defaults/mig/profiles/0'"},
		{name: "no UUID", value: `{"gpus":[{"match":{"uuids":["0"]}}]}`, want: "at '/nodeConfig/gpus/0/match/uuids/0'"},
		{name: "empty product", value: `{"gpus":[{"match":{"products":[""]}}]}`, want: "at '/nodeConfig/gpus/0/match/products/0'"},
		{name: "part of a byte", value: `{"defaults":{"memory":{"min":"0.3Mi"}}}`, want: "at '/nodeConfig/defaults/memory/min'"},
		{name: "more than one kind of a profile", value: `{"defaults":{"mig":{"profiles":["1g.10gb+me+gfx"]}}}`, want: "at '/nodeConfig/defaults/mig/profiles/0'"},
		{name: "profile twice", value: `{"defaults":{"mig":{"profiles":["1g.10gb","1g.10gb"]}}}`, want: "at '/nodeConfig/defaults/mig/profiles'"},
		{name: "no profiles", value: `{"defaults":{"mig":{"profiles":[]}}}`, want: "at '/nodeConfig/defaults/mig/profiles'", chart: true},
		{name: "unfinished pattern", value: `{"gpus":[{"match":{"products":["NVIDIA [AH"]}}]}`, want: "at '/nodeConfig/gpus/0/match/products/0'"},
		{name: "unknown mechanism", value: `{"defaults":{"isolation":{"memory":"MPS"}}}`, want: "at '/nodeConfig/defaults/isolation/memory': value must be one of 'Any', 'Cgroup', 'None'"},
		{name: "unknown reaction", value: `{"gpus":[{"isolation":{"onOverUse":"Kill"}}]}`, want: "at '/nodeConfig/gpus/0/isolation/onOverUse'"},
		{name: "unknown field of isolation", value: `{"defaults":{"isolation":{"Required":true}}}`, want: "additional properties 'Required' not allowed"},
		{name: "no mechanism that is required", value: `{"defaults":{"isolation":{"memory":"None","required":true}}}`, want: "nodeConfig.defaults.isolation.required true: with memory: None"},
		{name: "no mechanism that the defaults require", value: `{"defaults":{"isolation":{"required":true}},"gpus":[{"isolation":{"memory":"None"}}]}`, want: "nodeConfig.gpus[0].isolation.required true: with memory: None"},
		{name: "no architecture", value: `{"gpus":[{"match":{"architectures":[""]}}]}`, want: "at '/nodeConfig/gpus/0/match/architectures/0'"},
		{name: "MIG mode without MIG", value: `{"defaults":{"mig":{"mode":"OnDemand"}}}`, want: "nodeConfig.defaults.mig.mode OnDemand: only with MIG in offer, which is [Slice GPU]"},
		{name: "MIG mode of a rule without MIG", value: `{"defaults":{"offer":["MIG"]},"gpus":[{"offer":["GPU"],"mig":{"mode":"Enabled"}}]}`, want: "nodeConfig.gpus[0].mig.mode Enabled: only with MIG in offer, which is [GPU]"},
		{name: "MIG mode that is inherited without MIG", value: `{"gpus":[{"mig":{"mode":"OnDemand"}}]}`, want: "nodeConfig.gpus[0].mig.mode OnDemand: only with MIG in offer, which is [Slice GPU]"},
		{name: "shares in MIG mode", value: `{"defaults":{"offer":["Slice","MIG"],"mig":{"mode":"Enabled"}}}`, want: "nodeConfig.defaults.mig.mode Enabled: a GPU that is always in MIG mode has nothing but partitions: set offer, which is [Slice MIG], to [MIG]"},
		{name: "shares in an inherited MIG mode", value: `{"defaults":{"offer":["MIG"],"mig":{"mode":"Enabled"}},"gpus":[{"offer":["MIG","GPU"]}]}`, want: "nodeConfig.gpus[0].mig.mode Enabled: a GPU that is always in MIG mode"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused(t, setJSON("nodeConfig="+test.value), test.want)
			if err := decodes(test.value); err == nil && !test.chart {
				t.Error("The plugin accepts it")
			}
		})
	}
	for _, test := range []struct {
		name, value, want string
		chart             bool
	}{
		{name: "no selector", value: `{"defaults":{}}`, want: "at '/nodeConfigOverrides/0': missing property 'nodeSelector'", chart: true},
		{name: "selector of every node", value: `{"nodeSelector":{}}`, want: "at '/nodeConfigOverrides/0/nodeSelector': minProperties: got 0, want 1", chart: true},
		{name: "labels of every node", value: `{"nodeSelector":{"matchLabels":{}}}`, want: "at '/nodeConfigOverrides/0/nodeSelector/matchLabels'", chart: true},
		{name: "label without matchLabels", value: `{"nodeSelector":{"a":"b"}}`, want: "additional properties 'a' not allowed"},
		{name: "impossible label", value: `{"nodeSelector":{"matchLabels":{"a":"not ok"}}}`, want: "at '/nodeConfigOverrides/0/nodeSelector/matchLabels/a'"},
		{name: "number for a label", value: `{"nodeSelector":{"matchLabels":{"a":1}}}`, want: "at '/nodeConfigOverrides/0/nodeSelector/matchLabels/a': got number, want string"},
		{name: "unknown operator", value: `{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}}`, want: "at '/nodeConfigOverrides/0/nodeSelector/matchExpressions/0/operator'"},
		{name: "in nothing", value: `{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`, want: "missing property 'values'"},
		{name: "exists with values", value: `{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}}`, want: "at '/nodeConfigOverrides/0/nodeSelector/matchExpressions/0/values'"},
		{name: "impossible name of a label", value: `{"nodeSelector":{"matchLabels":{"a/b/c":"d"}}}`, want: "at '/nodeConfigOverrides/0/nodeSelector/matchLabels': additional properties 'a/b/c' not allowed"},
		{name: "MIG mode without MIG", value: `{"nodeSelector":{"matchLabels":{"a":"b"}},"defaults":{"mig":{"mode":"Enabled"}}}`, want: "nodeConfigOverrides[0].defaults.mig.mode Enabled: only with MIG in offer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused(t, setJSON("nodeConfigOverrides=["+test.value+"]"), test.want)
			if err := decodes(test.value); err == nil && !test.chart {
				t.Error("The plugin accepts it")
			}
		})
	}
}

// Nor does the plugin refuse what the chart lets pass.
func TestAcceptedNodeConfig(t *testing.T) {
	type object = map[string]any
	var rules []object
	for _, q := range []any{1, 268435456, "1", "0256Mi", "+1Gi", "0.5Gi", "1.50Mi", ".125Ki", "2.375k", "1e6", "1E+3"} {
		rules = append(rules, object{"memory": object{"min": q, "step": q, "reserve": q}})
	}
	for _, q := range []any{0, "0", "0Gi", "00"} {
		rules = append(rules, object{"memory": object{"reserve": q}})
	}
	for _, pattern := range []string{"NVIDIA H100 80GB HBM3", "*", "NVIDIA [AH]?00*", "[^a-z0-9]x]", `\[\*\]`} {
		rules = append(rules, object{"match": object{"products": []string{pattern}}})
	}
	for _, name := range []string{"1g.10gb", "1g.10gb+me", "2g.48gb+me.all", "1g.24gb-me", "7g.180gb"} {
		rules = append(rules, object{"mig": object{"profiles": []string{name}}})
	}
	for _, mode := range []string{"Keep", "Enabled", "OnDemand"} {
		rules = append(rules, object{"offer": []string{"MIG"}, "mig": object{"mode": mode}})
	}
	rules = append(rules, object{"offer": []string{"Slice", "GPU", "MIG"}, "ranks": 7, "mig": object{"mode": "OnDemand"}}, object{"ranks": 0}, object{})
	selector := object{
		"matchLabels":      object{"a": "", "example.com/a_b.c": "X-1"},
		"matchExpressions": []object{{"key": "b", "operator": "NotIn", "values": []string{"c"}}, {"key": "d", "operator": "DoesNotExist"}, {"key": "e", "operator": "Exists", "values": []string{}}},
	}
	configs := nodeConfigs(t, setJSON("nodeConfigOverrides="+compact(t, []object{{"nodeSelector": selector, "gpus": rules}}),
		// The rules inherit, in turn, a mode that they do not need, and what theirs needs.
		`nodeConfig={"defaults":{"offer":["GPU","MIG"],"mig":{"mode":"OnDemand"}},"gpus":[{"offer":["GPU"]},{"mig":{"mode":"OnDemand"}}]}`))
	if len(configs) != 2 || len(configs[0].GPUs) != len(rules) || len(configs[1].GPUs) != 2 {
		t.Errorf("Of %d and 2 rules the plugin reads %v", len(rules), configs)
	}
}

// decodes tells what the plugin says of a NodeConfig without kind.
func decodes(value string) error {
	_, err := v1alpha1.DecodeNodeConfigs([]byte(`{"apiVersion":"memslice.dev/v1alpha1","kind":"NodeConfig",` + value[1:]))
	return err
}
