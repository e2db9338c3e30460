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
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
)

const (
	driverName     = gpu.DriverName
	resourceClaims = "resourceclaims"
)

func TestPolicy(t *testing.T) {
	policy := compile(t, named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, render(t, installation{}), "-resourceslices"))
	plugin := func(extra map[string][]string) user.Info {
		return &user.DefaultInfo{Name: "system:serviceaccount:memslice:memslice-kubelet-plugin", Extra: extra}
	}
	onNode1 := plugin(map[string][]string{serviceaccount.NodeNameKey: {"node-1"}})
	own, others := slice(driverName, "node-1", "node-1"), slice(driverName, "node-2", "node-2")
	for _, test := range []struct {
		name     string
		user     user.Info
		new, old *resourceapi.ResourceSlice
		denied   string // part of the message; empty: allowed
	}{
		{name: "create for the own node", user: onNode1, new: own},
		{name: "update for the own node", user: onNode1, new: own, old: own},
		{name: "delete for the own node", user: onNode1, old: own},
		{name: "create for another node", user: onNode1, new: others, denied: "on node node-1 may write only that node's ResourceSlices, spec.nodeName is 'node-2'"},
		{name: "update of another node's", user: onNode1, new: others, old: others, denied: "spec.nodeName is 'node-2'"},
		{name: "delete of another node's", user: onNode1, old: others, denied: "spec.nodeName is 'node-2'"},
		{name: "take over from another node", user: onNode1, new: own, old: others, denied: "spec.nodeName is 'node-2'"},
		{name: "create for all nodes", user: onNode1, new: slice(driverName, "", "node-1"), denied: "spec.nodeName is ''"},
		{name: "create for another driver", user: onNode1, new: slice("gpu.example.com", "node-1", "node-1"), denied: "may write only ResourceSlices of driver gpu.memslice.dev, spec.driver is gpu.example.com"},
		{name: "delete of another driver's", user: onNode1, old: slice("gpu.example.com", "node-1", "node-1"), denied: "spec.driver is gpu.example.com"},
		{name: "pool of a GPU's own", user: onNode1, new: slice(driverName, "node-1", "node-1/gpu-1f5e9c0a-77b2")},
		{name: "pool of another node", user: onNode1, new: slice(driverName, "node-1", "node-2"), denied: "may write only pools whose name is the node's or begins with it and a slash, spec.pool.name is 'node-2'"},
		{name: "pool of another node's GPU", user: onNode1, new: slice(driverName, "node-1", "node-2/gpu-1f5e9c0a-77b2"), denied: "spec.pool.name is 'node-2/gpu-1f5e9c0a-77b2'"},
		{name: "pool of a node with a longer name", user: onNode1, new: slice(driverName, "node-1", "node-10/gpu-1f5e9c0a-77b2"), denied: "spec.pool.name is 'node-10/gpu-1f5e9c0a-77b2'"},
		{name: "take over a pool", user: onNode1, new: own, old: slice(driverName, "node-1", "shared"), denied: "spec.pool.name is 'shared'"},
		{name: "token without a node", user: plugin(map[string][]string{"example.com/other": {"x"}}), new: own, denied: "this token names no node"},
		{name: "token without anything", user: plugin(nil), new: own, denied: "this token names no node"},
		{name: "empty node in the token", user: plugin(map[string][]string{serviceaccount.NodeNameKey: {}}), new: own, denied: "this token names no node"},
		{name: "no node on either side", user: plugin(nil), new: slice(driverName, "", ""), denied: "this token names no node"},
		{name: "delete without a node", user: plugin(nil), old: own, denied: "this token names no node"},
		{name: "an administrator", user: &user.DefaultInfo{Name: "admin"}, new: others},
		{name: "another driver", user: &user.DefaultInfo{Name: "system:serviceaccount:other:memslice-kubelet-plugin"}, new: slice("gpu.example.com", "node-2", "node-2")},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := write{who: test.user}
			if test.new != nil {
				w.new = test.new
			}
			if test.old != nil {
				w.old = test.old
			}
			denied := policy.review(t, w)
			switch {
			case test.denied == "" && denied != "":
				t.Errorf("Denied: %s", denied)
			case test.denied != "" && !strings.Contains(denied, test.denied):
				t.Errorf("Denied with %q, want a message with %q", denied, test.denied)
			case test.denied != "" && strings.Contains(denied, "'node-1'"):
				t.Errorf("The message blames the right node: %s", denied)
			}
		})
	}
}

// The pools that the plugin publishes are among those that it may write.
func TestPublishedPools(t *testing.T) {
	policy := compile(t, named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, render(t, installation{}), "-resourceslices"))
	who := &user.DefaultInfo{
		Name:  "system:serviceaccount:memslice:memslice-kubelet-plugin",
		Extra: map[string][]string{serviceaccount.NodeNameKey: {"node-1"}},
	}
	pools := publish.Resources("node-1", devices(t)).Pools
	if len(pools) != 2 {
		t.Errorf("There are %d pools, want the node's and the GPU's", len(pools))
	}
	for name := range pools {
		if denied := policy.review(t, write{who: who, new: slice(driverName, "node-1", name)}); denied != "" {
			t.Error(denied)
		}
	}
}

// Whatever the release is called, the policy is about the service account that
// the pods run as and that has the rights.
func TestIdentity(t *testing.T) {
	for _, test := range []struct {
		name            string
		installation    installation
		namespace, user string
	}{
		{name: "defaults", namespace: "memslice", user: "memslice-kubelet-plugin"},
		{name: "other release", installation: installation{release: "gpus", namespace: "kube-system"}, namespace: "kube-system", user: "gpus-memslice-kubelet-plugin"},
		{name: "fullnameOverride", installation: set("fullnameOverride=shares"), namespace: "memslice", user: "shares-kubelet-plugin"},
		{name: "nameOverride", installation: set("nameOverride=shares"), namespace: "memslice", user: "memslice-shares-kubelet-plugin"},
		{name: "namespaceOverride", installation: set("namespaceOverride=elsewhere"), namespace: "elsewhere", user: "memslice-kubelet-plugin"},
		{name: "serviceAccount.name", installation: set("serviceAccount.name=mine"), namespace: "memslice", user: "mine"},
		{name: "existing account", installation: set("serviceAccount.create=false", "serviceAccount.name=mine"), namespace: "memslice", user: "mine"},
		{
			name:         "long names",
			installation: installation{release: strings.Repeat("r", 53), args: []string{"--set", "fullnameOverride=" + strings.Repeat("f", 47) + "-" + strings.Repeat("g", 10)}},
			namespace:    "memslice", user: strings.Repeat("f", 47) + "-kubelet-plugin",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects := render(t, test.installation)
			daemonSet := only[*appsv1.DaemonSet](t, objects)
			if daemonSet.Namespace != test.namespace || daemonSet.Spec.Template.Spec.ServiceAccountName != test.user {
				t.Errorf("The pods run as %s of %s, want %s of %s", daemonSet.Spec.Template.Spec.ServiceAccountName, daemonSet.Namespace, test.user, test.namespace)
			}
			for _, account := range all[*corev1.ServiceAccount](objects) {
				if account.Namespace != test.namespace || account.Name != test.user {
					t.Errorf("The chart creates %s of %s, want %s of %s", account.Name, account.Namespace, test.user, test.namespace)
				}
			}
			binding := only[*rbacv1.ClusterRoleBinding](t, objects)
			want := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: test.namespace, Name: test.user}
			if len(binding.Subjects) != 1 || binding.Subjects[0] != want {
				t.Errorf("The rights are of %v, want %v", binding.Subjects, want)
			}
			if role := only[*rbacv1.ClusterRole](t, objects); binding.RoleRef.Name != role.Name {
				t.Errorf("The binding is to role %s, the chart's is %s", binding.RoleRef.Name, role.Name)
			}
			policy := named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, "-resourceslices")
			policyBinding := named[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, objects, "-resourceslices").Spec
			if policyBinding.PolicyName != policy.Name || policyBinding.MatchResources != nil {
				t.Errorf("The binding is to policy %s with matchResources %v, the chart's policy is %s", policyBinding.PolicyName, policyBinding.MatchResources, policy.Name)
			}
			account := serviceaccount.UserInfo(test.namespace, test.user, "")
			if compile(t, policy).review(t, write{who: account, new: slice(driverName, "node-1", "node-1")}) == "" {
				t.Errorf("The policy does not match %s", account.GetName())
			}
		})
	}
}

func slice(driver, node, pool string) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: driver, Pool: resourceapi.ResourcePool{Name: pool}}}
	if node != "" {
		s.Spec.NodeName = &node
	}
	return s
}
