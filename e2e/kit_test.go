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
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/memslice/memslice/e2e/harness"
)

// main is the name of the container in pods that have one.
const mainContainer = "main"

// kit is what a scenario works with: a namespace of its own, and steps that end
// the scenario when they fail.
type kit struct {
	*testing.T
	*harness.Cluster
	ctx        context.Context
	ns         string
	config     string    // of the scenario's group, to go back to
	namespaces *[]string // with those of other kits of the scenario
	afterwards *[]func() // what to undo once no pod is left
}

func newKit(t *testing.T, c *harness.Cluster, config string) *kit {
	// Not the test's own context: that has ended when there is tidying up to do.
	ctx := context.WithoutCancel(t.Context())
	k := &kit{T: t, Cluster: c, ctx: ctx, config: config, namespaces: new([]string), afterwards: new([]func())}
	return k.inNamespace(nil)
}

// inNamespace returns a kit for another namespace.
func (k *kit) inNamespace(labels map[string]string) *kit {
	k.Helper()
	all := map[string]string{testLabel: "true"}
	for name, value := range labels {
		all[name] = value
	}
	ns, err := k.Client.CoreV1().Namespaces().Create(k.ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: all}}, metav1.CreateOptions{})
	k.ok(err)
	*k.namespaces = append(*k.namespaces, ns.Name)
	other := *k
	other.ns = ns.Name
	return &other
}

func (k *kit) ok(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

// afterward has something undone after the scenario, when none of its pods is left.
func (k *kit) afterward(undo func() error) {
	*k.afterwards = append(*k.afterwards, func() {
		if err := undo(); err != nil {
			k.Errorf("tidying up: %v", err)
		}
	})
}

// tidy says what is wrong after a failure, waits until nothing is held, and
// undoes what the scenario asked for.
func (k *kit) tidy() {
	if k.Failed() {
		for _, ns := range *k.namespaces {
			k.Logf("namespace %s:\n%s", ns, k.Diagnose(k.ctx, ns))
		}
	}
	for _, ns := range *k.namespaces {
		if err := k.release(k.ctx, ns); err != nil {
			k.Errorf("tidying up: %v", err)
		}
	}
	for _, undo := range slices.Backward(*k.afterwards) {
		undo()
	}
}

func (k *kit) release(ctx context.Context, ns string) error {
	if err := k.releaseDeployments(ctx, ns); err != nil {
		return err
	}
	pods, err := k.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if err := k.Client.CoreV1().Pods(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if node := pod.Spec.NodeName; node != "" && node != k.NodeName {
			// There is no kubelet to end it.
			err := k.Client.CoreV1().Pods(ns).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		if err := k.AwaitGone(ctx, ns, pod.Name, pod.UID); err != nil {
			return err
		}
	}
	claims := k.Client.ResourceV1().ResourceClaims(ns)
	if err := claims.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	err = harness.Await(ctx, "the claims in namespace "+ns+" to be gone", func(ctx context.Context) (string, error) {
		list, err := claims.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return "", err
		}
		return fmt.Sprintf("%s has the finalizers %q", list.Items[0].Name, list.Items[0].Finalizers), nil
	})
	if err != nil {
		return err
	}
	return k.Client.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{})
}

// releaseDeployments deletes them first, as they would replace their pods.
func (k *kit) releaseDeployments(ctx context.Context, ns string) error {
	deployments := k.Client.AppsV1().Deployments(ns)
	foreground := metav1.DeletePropagationForeground
	if err := deployments.DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &foreground}, metav1.ListOptions{}); err != nil {
		return err
	}
	return harness.Await(ctx, "the Deployments in namespace "+ns+" to be gone", func(ctx context.Context) (string, error) {
		list, err := deployments.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return "", err
		}
		return list.Items[0].Name + " is being deleted", nil
	})
}

// claim creates a claim.
func (k *kit) claim(name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	k.Helper()
	return k.claimFrom(name, resourceapi.DeviceClaim{Requests: requests})
}

func (k *kit) claimFrom(name string, devices resourceapi.DeviceClaim) *resourceapi.ResourceClaim {
	k.Helper()
	claim, err := k.Client.ResourceV1().ResourceClaims(k.ns).Create(k.ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimSpec{Devices: devices},
	}, metav1.CreateOptions{})
	k.ok(err)
	return claim
}

// create creates a pod.
func (k *kit) create(pod *corev1.Pod) *corev1.Pod {
	k.Helper()
	created, err := k.Client.CoreV1().Pods(k.ns).Create(k.ctx, pod, metav1.CreateOptions{})
	k.ok(err)
	return created
}

// start creates a claim and a pod of the same name whose container uses it.
func (k *kit) start(name string, requests ...resourceapi.DeviceRequest) {
	k.Helper()
	k.claim(name, requests...)
	k.use(name, name)
}

// use creates a pod whose container uses claims that exist.
func (k *kit) use(name string, claims ...string) *corev1.Pod {
	k.Helper()
	var wanted []corev1.ResourceClaim
	for _, claim := range claims {
		wanted = append(wanted, all(claim))
	}
	return k.create(newPod(name, claims, newContainer(mainContainer, wanted...)))
}

// running waits for a pod to run and returns it.
func (k *kit) running(name string) *corev1.Pod {
	k.Helper()
	pod, err := k.AwaitRunning(k.ctx, k.ns, name)
	k.ok(err)
	return pod
}

// pending waits until the scheduler finds no place for a pod.
func (k *kit) pending(name string) {
	k.Helper()
	message, err := k.AwaitUnschedulable(k.ctx, k.ns, name)
	k.ok(err)
	if !strings.Contains(message, "cannot allocate all claims") {
		k.Errorf("pod %s is pending for another reason than its claims: %s", name, message)
	}
}

// remove deletes a pod and waits until it is gone.
func (k *kit) remove(name string) {
	k.Helper()
	pods := k.Client.CoreV1().Pods(k.ns)
	pod, err := pods.Get(k.ctx, name, metav1.GetOptions{})
	k.ok(err)
	k.ok(pods.Delete(k.ctx, name, metav1.DeleteOptions{}))
	k.ok(k.AwaitGone(k.ctx, k.ns, name, pod.UID))
}

// allocated waits until a claim is allocated and returns it.
func (k *kit) allocated(name string) *resourceapi.ResourceClaim {
	k.Helper()
	var claim *resourceapi.ResourceClaim
	k.ok(harness.Await(k.ctx, "claim "+k.ns+"/"+name+" to be allocated", func(ctx context.Context) (_ string, err error) {
		claim, err = k.Client.ResourceV1().ResourceClaims(k.ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && claim.Status.Allocation == nil {
			return "it is not", nil
		}
		return "", err
	}))
	return claim
}

// granted waits until a claim is allocated and returns what it got.
func (k *kit) granted(claim string) []harness.Grant {
	k.Helper()
	var grants []harness.Grant
	k.ok(harness.Await(k.ctx, "claim "+k.ns+"/"+claim+" to be allocated", func(ctx context.Context) (now string, err error) {
		if grants, err = k.Grants(ctx, k.ns, claim); err == nil && len(grants) == 0 {
			now = "it is not"
		}
		return now, err
	}))
	return grants
}

// grant is the only result of a claim.
func (k *kit) grant(claim string) harness.Grant {
	k.Helper()
	grants := k.granted(claim)
	if len(grants) != 1 {
		k.Fatalf("claim %s was allocated %d devices instead of one: %+v", claim, len(grants), grants)
	}
	return grants[0]
}
