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
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

const header = "apiVersion: memslice.dev/v1alpha1\nkind: NodeConfig\n"

func decodeOne(t *testing.T, text string) *NodeConfig {
	t.Helper()
	configs, err := DecodeNodeConfigs([]byte(text))
	if err != nil || len(configs) != 1 {
		t.Fatalf("got %d documents and error %v, want one", len(configs), err)
	}
	return &configs[0]
}

func TestDecodeNodeConfigsRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"no YAML":                       {"a: [", "document 1: not YAML"},
		"another kind":                  {"apiVersion: memslice.dev/v1alpha1\nkind: ShareConfig\n", `document 1: found apiVersion "memslice.dev/v1alpha1" and kind "ShareConfig"`},
		"another version":               {"apiVersion: memslice.dev/v2\nkind: NodeConfig\n", `found apiVersion "memslice.dev/v2"`},
		"no kind":                       {"defaults: {}\n", `found apiVersion "" and kind ""`},
		"an unknown field":              {header + "gpu: []\n", `document 1: unknown field "gpu"`},
		"an unknown field in a rule":    {header + "gpus: [{match: {}, offers: [GPU]}]\n", `unknown field "gpus[0].offers"`},
		"another case":                  {header + "defaults: {Ranks: 1}\n", `unknown field "defaults.Ranks"`},
		"a field twice":                 {header + "defaults: {ranks: 1, ranks: 2}\n", `document 1: duplicate field "defaults.ranks" in line 3`},
		"a field twice in a rule":       {header + "gpus:\n- {}\n- memory:\n    min: 1Gi\n    min: 1Gi\n", `duplicate field "gpus[1].memory.min" in line 7`},
		"a field twice, in JSON":        {`{"kind": "NodeConfig", "defaults": {"mig": {"mode": "Keep", "mode": "Keep"}}}`, `duplicate field "defaults.mig.mode"`},
		"a field in two cases":          {header + "defaults: {ranks: 1, Ranks: 2}\n", `unknown field "defaults.Ranks"`},
		"every wrong field":             {header + "a: 1\ngpus: [{b: 1}]\n", `document 1: [unknown field "a", unknown field "gpus[0].b"]`},
		"a kind in another case":        {"apiVersion: memslice.dev/v1alpha1\nKind: NodeConfig\n", `unknown field "Kind"`},
		"no object":                     {"- a\n", "document 1: not a NodeConfig: "},
		"a name that is no text":        {header + "1: x\n", "document 1: not YAML that can be written as JSON"},
		"a value that is no JSON":       {header + "defaults: {ranks: .inf}\n", "document 1: not YAML that can be written as JSON"},
		"a part of itself":              {header + "gpus: &a [*a]\n", "document 1: not YAML: "},
		"the second document":           {header + "---\n" + header + "x: 1\n", `document 2: unknown field "x"`},
		"counted as the file has them":  {"# Ours.\n---\n" + header + "--- # Nothing.\n---\n" + header + "x: 1\n", `document 3: unknown field "x"`},
		"more after the end":            {header + "...\n" + header, "document 2: not YAML: "},
		"a second one without mark":     {"{}\n{}\n", "document 1: found apiVersion"},
		"a type":                        {header + "defaults: {ranks: many}\n", "defaults.ranks of type int32"},
		"a form":                        {header + "defaults: {offer: [Slice, Pizza]}\n", `defaults.offer[1]: Unsupported value: "Pizza": supported values: "Slice", "GPU", "MIG"`},
		"a form in another case":        {header + "defaults: {offer: [slice]}\n", `defaults.offer[0]: Unsupported value: "slice"`},
		"no form":                       {header + "gpus: [{offer: []}]\n", "gpus[0].offer: Required value: at least one of [Slice GPU MIG]"},
		"no form by default":            {header + "defaults: {offer: []}\n", "defaults.offer: Required value"},
		"a form twice":                  {header + "gpus: [{offer: [GPU, GPU]}]\n", `gpus[0].offer[1]: Duplicate value: "GPU"`},
		"a UUID":                        {header + "gpus: [{match: {uuids: [GPU-1]}}]\n", `gpus[0].match.uuids[0]: Invalid value: "GPU-1"`},
		"a UUID of a MIG instance":      {header + "gpus: [{match: {uuids: [MIG-1f5e9c0a-77b2-4d0e-9f8a-0123456789ab]}}]\n", "gpus[0].match.uuids[0]: Invalid value"},
		"no UUID":                       {header + "gpus: [{match: {uuids: []}}]\n", "gpus[0].match.uuids: Required value: at least one entry; without the list every GPU"},
		"no product":                    {header + "gpus: [{match: {products: []}}]\n", "gpus[0].match.products: Required value"},
		"no architectures":              {header + "gpus: [{match: {architectures: []}}]\n", "gpus[0].match.architectures: Required value"},
		"an empty product":              {header + `gpus: [{match: {products: ["a", ""]}}]`, "gpus[0].match.products[1]: Invalid value"},
		"a pattern":                     {header + `gpus: [{match: {products: ["NVIDIA ["]}}]`, `gpus[0].match.products[0]: Invalid value: "NVIDIA ["`},
		"an empty architecture":         {header + `gpus: [{match: {architectures: [""]}}]`, "gpus[0].match.architectures[0]: Required value"},
		"no whole number of bytes":      {header + "defaults: {memory: {min: 100m}}\n", `defaults.memory.min: Invalid value: "100m"`},
		"no step":                       {header + "defaults: {memory: {step: 0}}\n", `defaults.memory.step: Invalid value: "0"`},
		"a negative reserve":            {header + "defaults: {memory: {reserve: -1}}\n", `defaults.memory.reserve: Invalid value: "-1"`},
		"no quantity":                   {header + "defaults: {memory: {min: 1GB}}\n", `document 1: defaults.memory.min: Invalid value: "1GB": must be an amount of bytes`},
		"no quantities in a rule":       {header + "gpus: [{}, {memory: {min: true, step: 1Mi, reserve: {}}}]\n", `[gpus[1].memory.min: Invalid value: "true": must be an amount of bytes, as in 256Mi, 1Gi or 1G, gpus[1].memory.reserve: Invalid value: "{}"`},
		"an endless exponent":           {header + "defaults: {memory: {min: \"1e-999999999\"}}\n", `defaults.memory.min: Invalid value: "1e-999999999"`},
		"more bytes than can be":        {header + "defaults: {memory: {min: 1e30}}\n", "defaults.memory.min: Invalid value"},
		"too many ranks":                {header + "gpus: [{ranks: 8}]\n", "gpus[0].ranks: Invalid value: 8: must be 0 to 7"},
		"negative ranks":                {header + "defaults: {ranks: -1}\n", "defaults.ranks: Invalid value: -1"},
		"a mode":                        {header + "defaults: {mig: {mode: Auto}}\n", `defaults.mig.mode: Unsupported value: "Auto"`},
		"a profile":                     {header + "gpus: [{offer: [MIG], mig: {profiles: [small]}}]\n", `gpus[0].mig.profiles[0]: Invalid value: "small"`},
		"a compute instance's profile":  {header + "gpus: [{offer: [MIG], mig: {profiles: [1c.3g.40gb]}}]\n", `gpus[0].mig.profiles[0]: Invalid value: "1c.3g.40gb"`},
		"no profile":                    {header + "gpus: [{offer: [MIG], mig: {profiles: []}}]\n", "gpus[0].mig.profiles: Required value: at least one name"},
		"a profile twice":               {header + "gpus: [{offer: [MIG], mig: {profiles: [1g.10gb, 1g.10gb]}}]\n", `gpus[0].mig.profiles[1]: Duplicate value`},
		"a mode without MIG":            {header + "gpus: [{mig: {mode: OnDemand}}]\n", `gpus[0].mig.mode: Invalid value: "OnDemand": only with MIG in offer, which is [Slice GPU]`},
		"a mode without MIG by default": {header + "defaults: {mig: {mode: Enabled}}\n", `defaults.mig.mode: Invalid value: "Enabled": only with MIG in offer`},
		"always MIG, and shares":        {header + "gpus: [{offer: [MIG, Slice], mig: {mode: Enabled}}]\n", "gpus[0].mig.mode: Invalid value: \"Enabled\": a GPU that is always in MIG mode"},
		"always MIG by default, and a rule with more": {
			header + "defaults: {offer: [MIG], mig: {mode: Enabled}}\ngpus: [{offer: [MIG, GPU]}]\n", "gpus[0].mig.mode: Invalid value: \"Enabled\": a GPU that is always in MIG mode",
		},
		"every wrong value":                 {header + "defaults: {ranks: 9}\ngpus: [{ranks: -1}]\n", "document 1: [defaults.ranks: Invalid value: 9: must be 0 to 7, gpus[0].ranks: Invalid value: -1: must be 0 to 7]"},
		"a mechanism that is not there yet": {header + "defaults: {isolation: {memory: MPS}}\n", `defaults.isolation.memory: Unsupported value: "MPS": supported values: "Any", "Cgroup", "None"`},
		"a mechanism in another case":       {header + "defaults: {isolation: {memory: cgroup}}\n", "defaults.isolation.memory: Unsupported value"},
		"another reaction":                  {header + "gpus: [{isolation: {onOverUse: Kill}}]\n", `gpus[0].isolation.onOverUse: Unsupported value: "Kill": supported values: "Report", "Evict"`},
		"nothing that is required":          {header + "defaults: {isolation: {memory: None, required: true}}\n", "defaults.isolation.required: Invalid value: true: with memory: None"},
		"nothing that the defaults require": {header + "defaults: {isolation: {required: true}}\ngpus: [{isolation: {memory: None}}]\n", "gpus[0].isolation.required: Invalid value: true"},
		"a label's operator":                {header + `nodeSelector: {matchExpressions: [{key: a, operator: Has}]}`, "nodeSelector.matchExpressions[0].operator: Invalid value"},
		"a label's value":                   {header + `nodeSelector: {matchExpressions: [{key: a, operator: In, values: ["b c"]}]}`, "nodeSelector.matchExpressions[0].values[0]: Invalid value"},
		"a label selector":                  {header + `nodeSelector: {matchLabels: {"a b": c}}`, "nodeSelector.matchLabels: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			configs, err := DecodeNodeConfigs([]byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v and error %v, want one with %q", configs, err, tc.want)
			}
		})
	}
}

func TestDecodeNodeConfigs(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want int
	}{
		"nothing":                 {"", 0},
		"a comment":               {"# nothing here\n", 0},
		"empty documents":         {"---\n---\n", 0},
		"nothing but a type":      {header, 1},
		"two":                     {header + "---\n" + header, 2},
		"JSON":                    {`{"apiVersion": "memslice.dev/v1alpha1", "kind": "NodeConfig", "defaults": {"ranks": 3}}`, 1},
		"JSON, with tabs":         {"{\n\t\"apiVersion\": \"memslice.dev/v1alpha1\",\n\t\"kind\": \"NodeConfig\"\n}\n", 1},
		"marked at both ends":     {"---\n" + header + "---\n", 1},
		"a mark with a comment":   {header + "--- # The others.\n" + header, 2},
		"null":                    {"null", 0},
		"fields without a value":  {header + "nodeSelector:\ndefaults: {offer: , memory: {min: }}\ngpus:\n", 1},
		"references":              {header + "gpus: [&a {ranks: 1, offer: &b [MIG]}, {<<: *a, ranks: 2}, {offer: *b}]\n", 1},
		"amounts of any notation": {header + "defaults: {memory: {min: 0.5Gi, step: 1e3, reserve: 1048576}}\n", 1},
		"a rule without MIG under defaults that have it": {header + "defaults: {offer: [MIG], mig: {mode: Enabled}}\ngpus: [{offer: [GPU]}]\n", 1},
		"newer profiles": {header + "defaults: {offer: [MIG], mig: {profiles: [1g.24gb+me.all, 1g.24gb-me, 2g.48gb+gfx]}}\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			configs, err := DecodeNodeConfigs([]byte(tc.text))
			if err != nil || len(configs) != tc.want {
				t.Errorf("got %d documents and error %v, want %d", len(configs), err, tc.want)
			}
		})
	}
}

// The example in the documentation is right, and does what is said beside it.
func TestDocumentedExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```yaml\n(apiVersion: memslice.*?)```").FindSubmatch(page)
	if example == nil {
		t.Fatal("no example in docs/configuration.md")
	}
	config := decodeOne(t, string(example[1]))
	for name, tc := range map[string]struct {
		uuid, product, architecture string
		offer                       []Form
		mode                        MIGMode
		profiles                    []string
	}{
		"a Hopper":       {"GPU-0", "NVIDIA H100 80GB HBM3", "Hopper", []Form{FormSlice, FormGPU, FormMIG}, MIGOnDemand, []string{"1g.10gb", "3g.40gb"}},
		"an A100":        {"GPU-0", "NVIDIA A100-SXM4-40GB", "Ampere", []Form{FormMIG}, MIGEnabled, nil},
		"one by UUID":    {"GPU-1f5e9c0a-77b2-4d0e-9f8a-0123456789ab", "Tesla T4", "Turing", []Form{FormGPU}, MIGKeep, nil},
		"the first wins": {"GPU-1f5e9c0a-77b2-4d0e-9f8a-0123456789ab", "NVIDIA A100-SXM4-40GB", "Ampere", []Form{FormMIG}, MIGEnabled, nil},
		"any other":      {"GPU-0", "Tesla T4", "Turing", []Form{FormSlice, FormGPU}, MIGKeep, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := config.For(tc.uuid, tc.product, tc.architecture)
			if diff := cmp.Diff(tc.offer, got.Offer); diff != "" || got.MIG.Mode != tc.mode || !cmp.Equal(got.MIG.Profiles, tc.profiles) {
				t.Errorf("got %+v, want offer %v, mode %s, profiles %v", got, tc.offer, tc.mode, tc.profiles)
			}
		})
	}
}

func TestForFillsInFromTheDefaults(t *testing.T) {
	config := decodeOne(t, header+`
defaults: {memory: {min: 1Gi, reserve: 2Gi}, ranks: 3, isolation: {required: true}}
gpus:
- match: {architectures: [Hopper], products: ["*H100*"]}
  memory: {min: 4Gi}
  ranks: 0
  isolation: {memory: Cgroup, onOverUse: Evict}
`)
	defaults := GPUConfig{
		Offer:  []Form{FormSlice, FormGPU},
		Memory: MemoryConfig{Min: quantity("1Gi"), Step: quantity("1Mi"), Reserve: quantity("2Gi")},
		Ranks:  ptr.To[int32](3),
		MIG:    MIGConfig{Mode: MIGKeep},

		Isolation: IsolationConfig{Memory: IsolationAny, Required: ptr.To(true), OnOverUse: OverUseReport},
	}
	rule := defaults
	rule.Memory.Min, rule.Ranks = quantity("4Gi"), ptr.To[int32](0)
	rule.Isolation.Memory, rule.Isolation.OnOverUse = IsolationCgroup, OverUseEvict
	for name, tc := range map[string]struct {
		product, architecture string
		want                  GPUConfig
	}{
		"both lists match": {"NVIDIA H100 80GB HBM3", "Hopper", rule},
		"one of them does": {"NVIDIA H200", "Hopper", defaults},
		"the other does":   {"NVIDIA H100 80GB HBM3", "Ampere", defaults},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, config.For("GPU-0", tc.product, tc.architecture)); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

func quantity(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }

func TestSelectNodeConfig(t *testing.T) {
	configs, err := DecodeNodeConfigs([]byte(header + "nodeSelector: {matchLabels: {pool: a}}\ndefaults: {ranks: 1}\n---\n" +
		header + "nodeSelector: {matchExpressions: [{key: pool, operator: In, values: [a, b]}]}\ndefaults: {ranks: 2}\n---\n" +
		header + "defaults: {ranks: 3}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		configs []NodeConfig
		labels  map[string]string
		ranks   int32
	}{
		"the first that matches":    {configs, map[string]string{"pool": "a"}, 1},
		"a later one":               {configs, map[string]string{"pool": "b"}, 2},
		"the one without selector":  {configs, nil, 3},
		"none matches: defaults":    {configs[:2], map[string]string{"pool": "c"}, 7},
		"no documents: the default": {nil, nil, 7},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := SelectNodeConfig(tc.configs, tc.labels)
			if err != nil || *got.Defaults.Ranks != tc.ranks {
				t.Errorf("got %+v and error %v, want %d ranks", got, err, tc.ranks)
			}
		})
	}
}
