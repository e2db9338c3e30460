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

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/memslice/memslice/e2e/harness"
)

func nodeScenarios() []scenario {
	return []scenario{
		{gets: "pods that run on while the plugin is restarted, and end as they should after it", run: pluginRestart},
		{gets: "pods that run on while the kubelet is restarted, which prepares their claims again", containers: true, run: kubeletRestart}, // 6
		{gets: "a plugin that starts although a file of its state is damaged, which is set aside", run: damagedState},                       // 9
		{gets: "a node's plugin that can write the ResourceSlices of its node, and no other's", containers: true, run: otherNodesSlice},
	}
}

func pluginRestart(k *kit) {
	claim := k.claim("old", share("gpu", "20Gi"))
	k.use("old", "old")
	before, grant := k.running("old"), k.grant("old")

	k.ok(k.RestartPlugin(k.ctx))
	k.ok(k.AwaitGPUs(k.ctx))
	after := k.running("old")
	if was, is := containerOf(before), containerOf(after); was != is {
		k.Errorf("the pod's container was %s and is %s after the restart", was, is)
	}
	k.sees(after, mainContainer, grant)
	k.start("new", share("gpu", "20Gi"))
	k.sees(k.running("new"), mainContainer, k.grant("new"))

	k.remove("old")
	if files, err := k.ClaimFiles(string(claim.UID)); err != nil || len(files) != 0 {
		k.Errorf("the claim that another plugin process prepared is left: files %q, %v", files, err)
	}
}

func kubeletRestart(k *kit) {
	claim := k.claim("old", share("gpu", "20Gi"))
	k.use("old", "old")
	before, grant := k.running("old"), k.grant("old")

	k.ok(k.RestartKubelet(k.ctx))
	// A pod that starts is what shows that the new kubelet is at work.
	k.start("new", share("gpu", "20Gi"))
	k.sees(k.running("new"), mainContainer, k.grant("new"))
	after := k.running("old")
	if was, is := containerOf(before), containerOf(after); was != is {
		k.Errorf("the pod's container was %s and is %s after the restart", was, is)
	}
	k.sees(after, mainContainer, grant)

	k.remove("old")
	if files, err := k.ClaimFiles(string(claim.UID)); err != nil || len(files) != 0 {
		k.Errorf("the claim is left: files %q, %v", files, err)
	}
}

func damagedState(k *kit) {
	claim := k.claim("old", share("gpu", "20Gi"))
	k.use("old", "old")
	grant := k.grant("old")
	k.running("old")

	const unknown = "6d1f3c5e-0000-4000-8000-000000000000"
	damaged := filepath.Join(k.StateDir(), unknown+".json")
	k.ok(os.WriteFile(damaged, []byte(`{"version":`), 0o600))
	k.afterward(func() error { return os.RemoveAll(damaged) })
	k.ok(k.RestartPlugin(k.ctx))
	if _, err := os.Stat(damaged); !errors.Is(err, fs.ErrNotExist) {
		k.Errorf("%s is still where it was: %v", damaged, err)
	}
	if log := k.PluginLog(k.ctx, 1000); !strings.Contains(log, unknown) {
		k.Errorf("the plugin's log does not name the file:\n%s", log)
	}
	k.sees(k.running("old"), mainContainer, grant)
	k.start("new", share("gpu", "4Gi"))
	k.running("new")
	k.remove("old")
	if files, err := k.ClaimFiles(string(claim.UID)); err != nil || len(files) != 0 {
		k.Errorf("the claim beside the damaged file is left: files %q, %v", files, err)
	}
}

func otherNodesSlice(k *kit) {
	pod, err := k.PluginPod(k.ctx)
	k.ok(err)
	bound := plugin(k, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
	create := func(client kubernetes.Interface, slice *resourceapi.ResourceSlice, options metav1.CreateOptions) error {
		_, err := client.ResourceV1().ResourceSlices().Create(k.ctx, slice, options)
		return err
	}
	rehearse := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if err := create(bound, newSlice(k.NodeName, harness.DriverName), rehearse); err != nil {
		k.Errorf("a slice of its own node: %v", err)
	}
	ofOther := newSlice(k.NodeName, harness.DriverName)
	ofOther.Spec.Pool.Name = "elsewhere"
	k.refused("a slice in another node's pool", create(bound, ofOther, rehearse), "elsewhere")
	k.refused("a slice of another node", create(bound, newSlice("elsewhere", harness.DriverName), rehearse), "elsewhere")
	k.refused("a slice of another driver", create(bound, newSlice(k.NodeName, "nic.example.com"), rehearse), "nic.example.com")
	unbound := plugin(k, nil)
	k.refused("a slice by a token that no pod has", create(unbound, newSlice(k.NodeName, harness.DriverName), rehearse), "names no node")

	theirs := newSlice("elsewhere", harness.DriverName)
	k.ok(create(k.Client, theirs, metav1.CreateOptions{}))
	k.afterward(func() error {
		return k.Client.ResourceV1().ResourceSlices().Delete(k.ctx, theirs.Name, metav1.DeleteOptions{})
	})
	k.refused("deleting a slice of another node",
		bound.ResourceV1().ResourceSlices().Delete(k.ctx, theirs.Name, metav1.DeleteOptions{}), "elsewhere")
}

// refused checks that the admission policy is what said no, and that it says why.
func (k *kit) refused(what string, err error, word string) {
	k.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") || !strings.Contains(err.Error(), word) {
		k.Errorf("%s: got %v, want a refusal by the admission policy that has %q", what, err, word)
	}
}

// plugin is a client with a token of the plugin's service account.
func plugin(k *kit, bound *authenticationv1.BoundObjectReference) kubernetes.Interface {
	k.Helper()
	token, err := k.Client.CoreV1().ServiceAccounts(harness.Namespace).CreateToken(k.ctx, harness.PluginAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
	k.ok(err)
	config := rest.AnonymousClientConfig(k.Config)
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	k.ok(err)
	return client
}

func newSlice(node, driver string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("e2e-%s-%s", node, driver)},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node,
			Pool:    resourceapi.ResourcePool{Name: node + "/e2e", ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "gpu-0"}},
		},
	}
}

// containerOf tells one run of a pod's container from the next.
func containerOf(pod *corev1.Pod) string {
	if len(pod.Status.ContainerStatuses) == 0 {
		return "none" // as where no containers run
	}
	status := pod.Status.ContainerStatuses[0]
	return fmt.Sprintf("%s, restarted %d times", status.ContainerID, status.RestartCount)
}
