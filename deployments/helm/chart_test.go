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
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/memslice/memslice/pkg/golden"
)

// header begins every golden file, as it does every other YAML file.
func header(t *testing.T) string {
	t.Helper()
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, _, ok := strings.Cut(string(values), "\n\n")
	if !ok || !strings.Contains(text, "Copyright The memslice Authors") {
		t.Fatal("values.yaml does not begin with the licence header")
	}
	return text + "\n\n"
}

func TestGolden(t *testing.T) {
	for _, test := range []struct {
		name         string
		installation installation
	}{
		{name: "defaults"},
		{name: "loopback", installation: installation{args: []string{"--values", "testdata/loopback.values.yaml"}}},
		{name: "everything", installation: installation{
			release:   "shares",
			namespace: "gpu-system",
			args:      []string{"--values", "testdata/everything.values.yaml"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			manifests, err := template(t, test.installation)
			if err != nil {
				t.Fatal(err)
			}
			decode(t, manifests)
			golden.Check(t, filepath.Join("testdata", test.name+".golden.yaml"), []byte(header(t)+manifests))
		})
	}
}

func TestNotes(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want []string
		not  []string
	}{
		{
			name: "defaults",
			want: []string{"kubectl get resourceslices", "deviceClassName: slice.memslice.dev", "memslice.dev/placement: spread", "rollout status daemonset/memslice-kubelet-plugin"},
			not:  []string{"WARNING"},
		},
		{name: "no policy", args: []string{"--set", "admissionPolicy.enabled=false"}, want: []string{"WARNING: admissionPolicy.enabled is false"}},
		{name: "no classes", args: []string{"--set", "deviceClasses.create=false"}, not: []string{"slice.memslice.dev", "memslice.dev/placement"}},
		{name: "no spreading", args: []string{"--set", "spreadPolicy.enabled=false"}, want: []string{"slice.memslice.dev"}, not: []string{"memslice.dev/placement"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := []string{"install", "memslice", chart, "--namespace", "memslice", "--dry-run=client"}
			out, err := helm(t, append(args, test.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			_, notes, ok := strings.Cut(out, "NOTES:\n")
			if !ok {
				t.Fatalf("helm install shows no notes:\n%s", out)
			}
			for _, want := range test.want {
				if !strings.Contains(notes, want) {
					t.Errorf("The notes lack %q:\n%s", want, notes)
				}
			}
			for _, not := range test.not {
				if strings.Contains(notes, not) {
					t.Errorf("The notes contain %q:\n%s", not, notes)
				}
			}
		})
	}
}

func TestLint(t *testing.T) {
	if _, err := helm(t, "lint", "--strict", chart); err != nil {
		t.Error(err)
	}
}

func TestRights(t *testing.T) {
	objects := render(t, installation{})
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: []string{"get"}},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims/status"}, Verbs: []string{"update"}},
		{
			APIGroups:     []string{"resource.k8s.io"},
			Resources:     []string{resourceClaims + "/" + resourceapi.SubresourceDriver},
			ResourceNames: []string{driverName},
			Verbs:         []string{resourceapi.VerbPrefixAssociatedNode + "update"},
		},
		{
			APIGroups: []string{"resource.k8s.io"},
			Resources: []string{"resourceslices"},
			Verbs:     []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
	if diff := cmp.Diff(want, only[*rbacv1.ClusterRole](t, objects).Rules); diff != "" {
		t.Errorf("Rights of the plugin (-want +got):\n%s", diff)
	}
	if only[*corev1.ServiceAccount](t, objects).AutomountServiceAccountToken == nil {
		t.Error("Any pod with the service account gets its token")
	}
}

// Evicting pods takes a right that the plugin has only where it is to evict.
func TestRightToEvict(t *testing.T) {
	evict := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}}
	for _, test := range []struct {
		name, value string
		want        bool
	}{
		{name: "by default", value: "nodeConfig={}"},
		{name: "reported only", value: `nodeConfig={"defaults":{"isolation":{"onOverUse":"Report"}}}`},
		{name: "on all nodes", value: `nodeConfig={"defaults":{"isolation":{"onOverUse":"Evict"}}}`, want: true},
		{name: "of some GPUs", value: `nodeConfig={"gpus":[{"ranks":1},{"isolation":{"onOverUse":"Evict"}}]}`, want: true},
		{name: "on some nodes", value: `nodeConfigOverrides=[{"nodeSelector":{"matchLabels":{"a":"b"}},"defaults":{"isolation":{"onOverUse":"Evict"}}}]`, want: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			rules := only[*rbacv1.ClusterRole](t, render(t, setJSON(test.value))).Rules
			last := rules[len(rules)-1]
			if got := cmp.Equal(last, evict); got != test.want {
				t.Errorf("The last right is %v", last)
			}
		})
	}
}

func TestOptionalObjects(t *testing.T) {
	objects := render(t, set("deviceClasses.create=false", "admissionPolicy.enabled=false", "spreadPolicy.enabled=false", "serviceAccount.create=false", "serviceAccount.name=mine"))
	for _, o := range objects {
		switch o.(type) {
		case *appsv1.DaemonSet, *corev1.ConfigMap, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
		default:
			t.Errorf("The chart renders a %T although it is switched off", o)
		}
	}
	if len(objects) != 4 {
		t.Errorf("The chart renders %d objects, want 4", len(objects))
	}
}
