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
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/config"
)

func TestNodeConfig(t *testing.T) {
	kind := metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.NodeConfigKind}
	for _, test := range []struct {
		name         string
		installation installation
		want         []v1alpha1.NodeConfig
	}{
		{name: "defaults", want: []v1alpha1.NodeConfig{{TypeMeta: kind}}},
		{
			name:         "numbers",
			installation: setJSON(`nodeConfig={"defaults":{"memory":{"min":1073741824,"step":1048576,"reserve":0},"ranks":0}}`),
			want: []v1alpha1.NodeConfig{{TypeMeta: kind, Defaults: v1alpha1.GPUConfig{
				Memory: v1alpha1.MemoryConfig{Min: quantity("1Gi"), Step: quantity("1Mi"), Reserve: quantity("0")},
				Ranks:  new(int32),
			}}},
		},
		{
			name:         "overrides come first, in their order",
			installation: setJSON(`nodeConfigOverrides=[{"nodeSelector":{"matchLabels":{"a":"1"}}},{"nodeSelector":{"matchExpressions":[{"key":"b","operator":"Exists"}]},"defaults":{"offer":["MIG"]}}]`),
			want: []v1alpha1.NodeConfig{
				{TypeMeta: kind, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1"}}},
				{
					TypeMeta:     kind,
					NodeSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "b", Operator: metav1.LabelSelectorOpExists}}},
					Defaults:     v1alpha1.GPUConfig{Offer: []v1alpha1.Form{v1alpha1.FormMIG}},
				},
				{TypeMeta: kind},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			for n := range test.want {
				test.want[n].Default()
			}
			if diff := cmp.Diff(test.want, nodeConfigs(t, test.installation)); diff != "" {
				t.Errorf("What the plugin reads (-want +got):\n%s", diff)
			}
		})
	}
}

// Every field reaches the plugin.
func TestWholeNodeConfig(t *testing.T) {
	everything := installation{args: []string{"--values", "testdata/everything.values.yaml"}}
	first, _, _ := strings.Cut(nodeConfigFile(t, everything), "---\n")
	var override v1alpha1.NodeConfig
	if err := yaml.UnmarshalStrict([]byte(first), &override); err != nil {
		t.Fatal(err)
	}
	for _, missing := range zeroFields(reflect.ValueOf(override), "nodeConfigOverrides[0]") {
		t.Errorf("testdata/everything.values.yaml lacks %s", missing)
	}
	configs := nodeConfigs(t, everything)
	for _, test := range []struct {
		labels map[string]string
		want   *v1alpha1.NodeConfig
	}{
		{labels: map[string]string{"gpu-pool": "partitions", "tier": "batch"}, want: &configs[0]},
		{labels: map[string]string{"gpu-pool": "partitions"}, want: &configs[1]},
	} {
		got, err := v1alpha1.SelectNodeConfig(configs, test.labels)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("For a node with labels %v (-want +got):\n%s", test.labels, diff)
		}
	}
}

// The file is where the plugin looks for it, and in a directory of its own: a
// single mounted file would not change.
func TestNodeConfigIsMounted(t *testing.T) {
	for _, i := range []installation{{}, {release: "gpus", args: []string{"--set", "namespaceOverride=elsewhere"}}} {
		objects := render(t, i)
		configMap, daemonSet := only[*corev1.ConfigMap](t, objects), only[*appsv1.DaemonSet](t, objects)
		if configMap.Namespace != daemonSet.Namespace {
			t.Errorf("The ConfigMap is in namespace %s, the pods in %s", configMap.Namespace, daemonSet.Namespace)
		}
		pod := daemonSet.Spec.Template.Spec
		volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil })
		if volume < 0 || pod.Volumes[volume].ConfigMap.Name != configMap.Name {
			t.Fatalf("The pod does not mount ConfigMap %s", configMap.Name)
		}
		container := pod.Containers[0]
		mount := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == pod.Volumes[volume].Name })
		if mount < 0 || container.VolumeMounts[mount].SubPath != "" || !container.VolumeMounts[mount].ReadOnly {
			t.Fatalf("The container does not mount %s read-only and as a directory", pod.Volumes[volume].Name)
		}
		env := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == config.EnvName("config") })
		if env < 0 {
			t.Fatal("The plugin is not told where the file is")
		}
		directory, file := filepath.Split(container.Env[env].Value)
		if filepath.Clean(directory) != container.VolumeMounts[mount].MountPath || configMap.Data[file] == "" {
			t.Errorf("The plugin looks for %s; %v is mounted at %s", container.Env[env].Value, configMap.Data, container.VolumeMounts[mount].MountPath)
		}
	}
}

// The plugin applies a changed file itself: no pod is replaced for it.
func TestNodeConfigRollsNoPods(t *testing.T) {
	before := only[*appsv1.DaemonSet](t, render(t, installation{}))
	after := only[*appsv1.DaemonSet](t, render(t, setJSON(`nodeConfig={"defaults":{"ranks":3}}`)))
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
		t.Errorf("The DaemonSet changes:\n%s", diff)
	}
}

// What the documentation shows as a file and as values is what the chart takes.
func TestDocumentedNodeConfig(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, values := 0, 0
	for _, block := range strings.Split(string(content), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		var fields map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &fields); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		given := fields
		if fields["kind"] == v1alpha1.NodeConfigKind {
			files++
			delete(fields, "kind")
			delete(fields, "apiVersion")
			given = map[string]any{"nodeConfig": fields}
		} else {
			values++
		}
		var i installation
		for key, value := range given {
			i.args = append(i.args, "--set-json", key+"="+compact(t, value))
		}
		got := nodeConfigs(t, i)
		if _, ok := given["nodeConfigOverrides"]; !ok {
			want, err := v1alpha1.DecodeNodeConfigs([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("The documented file, by the chart (-want +got):\n%s", diff)
			}
		}
	}
	if files == 0 || values == 0 {
		t.Errorf("docs/configuration.md shows %d files and %d pieces of values, want some of each", files, values)
	}
}

// The schema has the fields that the plugin knows, and no others.
func TestSchemaIsTheNodeConfigs(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(readChartFile(t, "values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	properties := schema["properties"].(map[string]any)
	override := properties["nodeConfigOverrides"].(map[string]any)["items"].(map[string]any)
	compareFields(t, schema, "nodeConfigOverrides", override, reflect.TypeFor[v1alpha1.NodeConfig](), "apiVersion", "kind")
	compareFields(t, schema, "nodeConfig", properties["nodeConfig"].(map[string]any), reflect.TypeFor[v1alpha1.NodeConfig](), "apiVersion", "kind", "nodeSelector")
}

func compareFields(t *testing.T, root map[string]any, path string, schema map[string]any, typ reflect.Type, without ...string) {
	t.Helper()
	if ref, ok := schema["$ref"].(string); ok {
		schema = root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	if typ == reflect.TypeFor[*resource.Quantity]() {
		return
	}
	switch typ.Kind() {
	case reflect.Pointer:
		compareFields(t, root, path, schema, typ.Elem(), without...)
	case reflect.Slice:
		compareFields(t, root, path, schema["items"].(map[string]any), typ.Elem())
	case reflect.Struct:
		properties, _ := schema["properties"].(map[string]any)
		if schema["additionalProperties"] != false {
			t.Errorf("%s takes any field", path)
		}
		known := map[string]bool{}
		for _, f := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || slices.Contains(without, name) {
				continue
			}
			known[name] = true
			property, ok := properties[name].(map[string]any)
			if !ok {
				t.Errorf("The schema lacks %s.%s", path, name)
				continue
			}
			compareFields(t, root, path+"."+name, property, f.Type)
		}
		for name := range properties {
			if !known[name] {
				t.Errorf("The plugin does not know %s.%s", path, name)
			}
		}
	}
}

// zeroFields are the paths of fields that have no value, in the first element of
// each list.
func zeroFields(v reflect.Value, path string) (zero []string) {
	switch {
	case v.IsZero():
		return []string{path}
	case v.Kind() == reflect.Slice:
		return zeroFields(v.Index(0), path+"[0]")
	case v.Kind() == reflect.Pointer && v.Type() != reflect.TypeFor[*resource.Quantity]():
		return zeroFields(v.Elem(), path)
	case v.Kind() == reflect.Struct:
		for n := range v.NumField() {
			zero = append(zero, zeroFields(v.Field(n), path+"."+v.Type().Field(n).Name)...)
		}
	}
	return zero
}

// nodeConfigs are what the plugin reads from the file that it is given.
func nodeConfigs(t *testing.T, i installation) []v1alpha1.NodeConfig {
	t.Helper()
	text := nodeConfigFile(t, i)
	configs, err := v1alpha1.DecodeNodeConfigs([]byte(text))
	if err != nil {
		t.Fatalf("The plugin refuses the file: %v\n%s", err, text)
	}
	return configs
}

func nodeConfigFile(t *testing.T, i installation) string {
	t.Helper()
	configMap := only[*corev1.ConfigMap](t, render(t, i))
	if len(configMap.Data) != 1 {
		t.Fatalf("The ConfigMap has %d files, want 1", len(configMap.Data))
	}
	for _, text := range configMap.Data {
		return text
	}
	return ""
}

func setJSON(values ...string) installation {
	var i installation
	for _, v := range values {
		i.args = append(i.args, "--set-json", v)
	}
	return i
}

func compact(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}
