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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []string
		want   string
	}{
		{name: "unknown value", values: []string{"driverroot=/opt"}, want: "additional properties 'driverroot' not allowed"},
		{name: "unknown nested value", values: []string{"kubeletPlugin.nodeselector.a=b"}, want: "at '/kubeletPlugin': additional properties 'nodeselector' not allowed"},
		{name: "text for a number", values: []string{"logVerbosity=high"}, want: "at '/logVerbosity': got string, want integer"},
		{name: "text for a switch", values: []string{"admissionPolicy.enabled=maybe"}, want: "at '/admissionPolicy/enabled': got string, want boolean"},
		{name: "number for a label", values: []string{"kubeletPlugin.podLabels.a=1"}, want: "at '/kubeletPlugin/podLabels/a': got number, want string"},
		{name: "map for a list", values: []string{"kubeletPlugin.extraEnv.a=b"}, want: "at '/kubeletPlugin/extraEnv': got object, want array"},
		{name: "wrong pull policy", values: []string{"image.pullPolicy=Sometimes"}, want: "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'"},
		{name: "wrong logging format", values: []string{"loggingFormat=xml"}, want: "value must be one of 'text', 'json'"},
		{name: "null for a required value", values: []string{"kubeletRootDir=null"}, want: "missing property 'kubeletRootDir'"},
		{name: "former value", values: []string{"sharing.memoryMin=256Mi"}, want: "sharing: has gone; write sharing.memoryMin as nodeConfig.defaults.memory.min"},
		{name: "no ranks", values: []string{"spreadPolicy.ranks=0"}, want: "at '/spreadPolicy/ranks': minimum: got 0, want 1"},
		{name: "more ranks than alternatives", values: []string{"spreadPolicy.ranks=8"}, want: "at '/spreadPolicy/ranks': maximum: got 8, want 7"},
		{name: "no name of a class", values: []string{"spreadPolicy.deviceClasses={}"}, want: "at '/spreadPolicy/deviceClasses/0'"},
		{name: "code for a class", values: []string{`spreadPolicy.deviceClasses={a"]}`}, want: "at '/spreadPolicy/deviceClasses/0'"},
		{name: "hectic scans", values: []string{"kubeletPlugin.scanInterval=100ms"}, want: "at '/kubeletPlugin/scanInterval'"},
		{name: "no duration", values: []string{"kubeletPlugin.scanInterval=10"}, want: "at '/kubeletPlugin/scanInterval'"},

		{name: "relative path", values: []string{"kubeletRootDir=var/lib/kubelet"}, want: `kubeletRootDir "var/lib/kubelet": must be an absolute path`},
		{name: "trailing slash", values: []string{"driverRoot=/run/nvidia/driver/"}, want: `driverRoot "/run/nvidia/driver/": must be an absolute path on the node, without a trailing slash`},
		{name: "path upwards", values: []string{"cdiRoot=/var/../etc/cdi"}, want: `cdiRoot "/var/../etc/cdi": must be an absolute path`},
		{name: "empty path", values: []string{"driverRoot="}, want: `driverRoot "": must be an absolute path`},
		{name: "CDI specs in the root directory", values: []string{"cdiRoot=/"}, want: `cdiRoot "/": must not be the node's root directory`},
		{name: "host without port", values: []string{"k8sServiceHost=127.0.0.1"}, want: `k8sServiceHost "127.0.0.1" and k8sServicePort "": set both`},
		{name: "port without host", values: []string{"k8sServicePort=6443"}, want: `k8sServiceHost "" and k8sServicePort "6443": set both`},
		{name: "tag in the repository", values: []string{"image.repository=memslice:dev"}, want: `image.repository "memslice:dev": must carry no tag or digest`},
		{name: "digest in the repository", values: []string{"image.repository=a/memslice@sha256:0123"}, want: "must carry no tag or digest"},
		{name: "nobody's service account", values: []string{"serviceAccount.create=false"}, want: "serviceAccount.name: must name an existing service account"},
		{name: "surge and unavailable", values: []string{"kubeletPlugin.updateStrategy.rollingUpdate.maxUnavailable=1"}, want: "one of maxSurge (1) and maxUnavailable (1) must be 0"},
		{name: "neither surge nor unavailable", values: []string{"kubeletPlugin.updateStrategy.rollingUpdate.maxSurge=0%"}, want: "one of maxSurge (0%) and maxUnavailable (0) must be 0"},
		{name: "label of the chart", values: []string{`kubeletPlugin.podLabels.app\.kubernetes\.io/name=mine`}, want: `kubeletPlugin.podLabels: label "app.kubernetes.io/name" is set by the chart`},
		{name: "class label of the chart", values: []string{`deviceClasses.labels.helm\.sh/chart=mine`}, want: `deviceClasses.labels: label "helm.sh/chart" is set by the chart`},
		{name: "extended resource without domain", values: []string{"deviceClasses.extendedResourceName=gpu"}, want: `deviceClasses.extendedResourceName "gpu": must be a domain and a name`},
		{name: "extended resource of Kubernetes", values: []string{"deviceClasses.extendedResourceName=x.kubernetes.io/gpu"}, want: "not of kubernetes.io"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused(t, set(test.values...), test.want)
		})
	}
	t.Run("nothing to spread", func(t *testing.T) {
		refused(t, setJSON("spreadPolicy.deviceClasses=[]"), "at '/spreadPolicy/deviceClasses': minItems: got 0, want 1")
	})
}

func refused(t *testing.T, i installation, want string) {
	t.Helper()
	_, err := template(t, i)
	if err == nil {
		t.Fatalf("%v is accepted", i.args)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("%v: got %v\nwant a message with %q", i.args, err, want)
	}
}

func TestOldKubernetesIsRefused(t *testing.T) {
	_, err := helm(t, "template", "memslice", chart, "--kube-version", "1.35.9")
	if err == nil || !strings.Contains(err.Error(), "kubeVersion") {
		t.Errorf("Kubernetes 1.35: %v, want it refused for its version", err)
	}
	if _, err := helm(t, "template", "memslice", chart, "--kube-version", "1.36.0-gke.1"); err != nil {
		t.Error(err)
	}
}

func TestAccepted(t *testing.T) {
	for _, values := range [][]string{
		{"global.anything=else"},
		{"image.repository=localhost:5000/memslice"},
		{"driverRoot=/"},
		{"nodeConfig.defaults.memory.min=0.5Gi", "nodeConfig.defaults.memory.step=1e6"},
		{"nodeConfig.defaults.memory.reserve=0Gi", "kubeletPlugin.scanInterval=1m30s"},
		{"deviceClasses.extendedResourceName=nvidia.com/gpu"},
	} {
		if _, err := template(t, set(values...)); err != nil {
			t.Errorf("%v: %v", values, err)
		}
	}
}

// Each value is described in the schema and in the README, and nothing else is.
func TestValuesAreDescribed(t *testing.T) {
	var values map[string]any
	if err := yaml.Unmarshal(readChartFile(t, "values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(readChartFile(t, "values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	readme := string(readChartFile(t, "README.md"))
	// Helm sets it, for every chart that is a dependency of another.
	delete(schema["properties"].(map[string]any), "global")
	// Described to be refused with a message.
	delete(schema["properties"].(map[string]any), "sharing")

	compareKeys(t, "", values, schema)
	for key, value := range values {
		nested, ok := value.(map[string]any)
		if !ok {
			nested = map[string]any{"": nil}
		}
		for name := range nested {
			if full := strings.TrimSuffix(key+"."+name, "."); !strings.Contains(readme, "`"+full+"`") {
				t.Errorf("README.md does not describe `%s`", full)
			}
		}
	}
}

// compareKeys walks down as far as the schema lists properties and allows no
// others.
func compareKeys(t *testing.T, path string, values, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	if closed, ok := schema["additionalProperties"].(bool); !ok || closed || properties == nil {
		return
	}
	// The fields of affinity, resources and nodeConfig are optional.
	if len(values) == 0 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		value, ok := values[key]
		if !ok && path != "/kubeletPlugin/resources" {
			t.Errorf("values.yaml lacks %s/%s, which the schema describes", path, key)
		}
		nested, _ := value.(map[string]any)
		property, _ := properties[key].(map[string]any)
		compareKeys(t, path+"/"+key, nested, property)
	}
	for key := range values {
		if _, ok := properties[key]; !ok {
			t.Errorf("The schema lacks %s/%s, which values.yaml has", path, key)
		}
	}
}

func readChartFile(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(chart, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}
