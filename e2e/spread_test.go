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
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/e2e/harness"
)

// spreadScenarios need eight GPUs of 80 GB.
func spreadScenarios() []scenario {
	return []scenario{
		{gets: "pods of one Deployment on different GPUs, and those of another between them", run: spreadDeployments},
		{gets: "a message that says what to write, for what cannot be spread", run: spreadRefused},
		{gets: "configuration of a request in force for the alternatives that it is expanded to", run: spreadConfiguration}, // 22
	}
}

// spreading marks a claim or a template to be spread.
var spreading = map[string]string{"memslice.dev/placement": "spread"}

func spreadDeployments(k *kit) {
	holders := func(names ...string) []string {
		var gpus []string
		for _, name := range names {
			for _, pod := range k.deployed(name) {
				grants, err := k.PodGrants(k.ctx, &pod)
				k.ok(err)
				for _, grant := range grants {
					gpus = append(gpus, grant.Device.GPU)
				}
			}
		}
		return gpus
	}
	k.deploy("first", 4, "10Gi")
	if first := holders("first"); len(distinct(first)) != 4 {
		k.Errorf("four pods of a Deployment are on the GPUs %q", first)
	}
	k.deploy("second", 4, "20Gi")
	if both := holders("first", "second"); len(distinct(both)) != 8 {
		k.Errorf("four pods each of two Deployments are on the GPUs %q", both)
	}
}

// deploy creates a Deployment whose pods have a share each from a template that
// is to be spread, and waits until they run.
func (k *kit) deploy(name string, replicas int32, memory string) {
	k.Helper()
	_, err := k.Client.ResourceV1().ResourceClaimTemplates(k.ns).Create(k.ctx, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: spreading},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: oneShare(memory)}},
	}, metav1.CreateOptions{})
	k.ok(err)
	pod := newPod("", nil, newContainer(mainContainer, all("gpu")))
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &name}}
	labels := map[string]string{"app": name}
	_, err = k.Client.AppsV1().Deployments(k.ns).Create(k.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	k.ok(err)
	k.available(name, replicas)
}

// available waits until the pods of a Deployment run.
func (k *kit) available(name string, replicas int32) {
	k.Helper()
	k.ok(harness.Await(k.ctx, "Deployment "+name+" to be available", func(ctx context.Context) (string, error) {
		d, err := k.Client.AppsV1().Deployments(k.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil || d.Status.AvailableReplicas == replicas {
			return "", err
		}
		return fmt.Sprintf("%d of %d are", d.Status.AvailableReplicas, replicas), nil
	}))
}

// deployed are the pods of a Deployment.
func (k *kit) deployed(name string) []corev1.Pod {
	k.Helper()
	list, err := k.Client.CoreV1().Pods(k.ns).List(k.ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	k.ok(err)
	return list.Items
}

func spreadRefused(k *kit) {
	admin := k.inNamespace(map[string]string{resourceapi.DRAAdminNamespaceLabelKey: "true"})
	alternatives := resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "any", DeviceClassName: harness.ShareClass}}}
	for what, claim := range map[string]struct {
		labels map[string]string
		words  []string // of the message: what is wrong and what to write
		wanted []resourceapi.DeviceRequest
	}{
		"several requests":    {spreading, []string{"2", "write a claim for each"}, []resourceapi.DeviceRequest{share("a", "1Gi"), share("b", "1Gi")}},
		"alternatives":        {spreading, []string{"firstAvailable", "write exactly"}, []resourceapi.DeviceRequest{alternatives}},
		"a whole GPU":         {spreading, []string{"class gpu.memslice.dev", "only slice.memslice.dev"}, []resourceapi.DeviceRequest{whole("gpu")}},
		"a partition":         {spreading, []string{"class mig.memslice.dev", "only slice.memslice.dev"}, []resourceapi.DeviceRequest{partition("gpu", "1g.10gb")}},
		"an administrator":    {spreading, []string{"adminAccess", "leave the label out"}, []resourceapi.DeviceRequest{share("gpu", "1Gi", asAdmin)}},
		"a rank of its own":   {spreading, []string{"rank", "leave one of the two out"}, []resourceapi.DeviceRequest{share("gpu", "1Gi", capacity("rank2", "1"))}},
		"a label with a slip": {map[string]string{"memslice.dev/placement": "spraed"}, []string{"spraed", "spread"}, []resourceapi.DeviceRequest{share("gpu", "1Gi")}},
	} {
		spec := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: claim.wanted}}
		meta := metav1.ObjectMeta{Name: "refused", Labels: claim.labels}
		_, claimErr := admin.Client.ResourceV1().ResourceClaims(admin.ns).Create(k.ctx, &resourceapi.ResourceClaim{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{})
		_, templateErr := admin.Client.ResourceV1().ResourceClaimTemplates(admin.ns).Create(k.ctx,
			&resourceapi.ResourceClaimTemplate{ObjectMeta: meta, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec}}, metav1.CreateOptions{})
		for kind, err := range map[string]error{"ResourceClaim": claimErr, "ResourceClaimTemplate": templateErr} {
			text := fmt.Sprint(err)
			lacks := func(word string) bool { return !strings.Contains(text, word) }
			if err == nil || slices.ContainsFunc(append(claim.words, kind), lacks) {
				k.Errorf("%s: a %s: got %s, want a refusal with %q", what, kind, text, claim.words)
			}
		}
	}
}

func spreadConfiguration(k *kit) {
	claim := func(isolation string) resourceapi.DeviceClaim {
		return isolated(isolation, oneShare("4Gi").Requests...)
	}
	// It shows in force where it asks for what there is not.
	k.ok(k.createBoth("insists", spreading, claim("MPS")))
	if grant := k.grant("insists"); grant.Request != "gpu/rank1" {
		k.Errorf("the request was not expanded: %+v", grant)
	}
	pod, err := k.Client.CoreV1().Pods(k.ns).Get(k.ctx, "insists", metav1.GetOptions{})
	k.ok(err)
	message, err := k.AwaitEvent(k.ctx, pod, "FailedPrepareDynamicResources", "isolation MPS is required")
	k.ok(err)
	k.Log(message)
	k.ok(k.createBoth("agrees", spreading, claim("None")))
	k.sees(k.running("agrees"), mainContainer, k.grant("agrees"))
	k.remove("insists")
}
