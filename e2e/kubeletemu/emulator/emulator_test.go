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

package emulator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/memslice/memslice/e2e/containerview"
)

func TestEachContainerGetsItsRequest(t *testing.T) {
	w := newWorld(t, newClaim("two", []string{"a", "b"}, []string{"p"}), newPod("p", "two", "a", "b"))
	w.emulate()
	w.until("the pod to run", w.running("p"))

	got, err := Views(w.pod("p"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]containerview.View{
		"c-a": {Env: map[string]string{"MEMSLICE_FOR": "a"}, DeviceNodes: []string{"/dev/nvidia7"}},
		"c-b": {Env: map[string]string{"MEMSLICE_FOR": "b"}, DeviceNodes: []string{"/dev/nvidia7"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("views differ (-want +got):\n%s", diff)
	}
}

func TestPodSaysThatNoContainerRan(t *testing.T) {
	w := newWorld(t, newClaim("one", []string{"a"}, []string{"p"}), newPod("p", "one", "a"))
	w.emulate()
	w.until("the pod to run", w.running("p"))

	status := w.pod("p").Status
	ready := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	if status.Reason != NoContainerRan || ready < 0 || status.Conditions[ready].Reason != NoContainerRan {
		t.Errorf("the status does not say so: %+v", status)
	}
	if len(status.ContainerStatuses) != 0 {
		t.Errorf("the status claims containers: %+v", status.ContainerStatuses)
	}
}

func TestSharedClaimIsUnpreparedAfterItsLastPod(t *testing.T) {
	w := newWorld(t, newClaim("shared", []string{"a"}, []string{"p", "q"}), newPod("p", "shared", "a"), newPod("q", "shared", "a"))
	w.emulate()
	w.until("pod p to run", w.running("p"))
	w.until("pod q to run", w.running("q"))
	if got := w.driver.count("claim-shared"); got != 1 {
		t.Errorf("the claim was prepared %d times instead of once for both pods", got)
	}
	w.remove("p")
	if got := w.driver.count("claim-shared"); got != 1 {
		t.Errorf("the claim was unprepared while pod q uses it")
	}
	w.remove("q")
	if got := w.driver.count("claim-shared"); got != 0 {
		t.Errorf("the claim is still prepared although no pod is left")
	}
}

func TestRefusalBecomesAnEventAndIsRetried(t *testing.T) {
	w := newWorld(t, newClaim("one", []string{"a"}, []string{"p"}), newPod("p", "one", "a"))
	w.driver.setRefusal(errors.New("no such device: load the driver"))
	w.emulate()
	w.until("an event with the driver's words", func(ctx context.Context) bool {
		events, err := w.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == "FailedPrepareDynamicResources" && strings.Contains(e.Message, "no such device: load the driver")
		})
	})
	if phase := w.pod("p").Status.Phase; phase != corev1.PodPending {
		t.Errorf("the pod is %s although its claim could not be prepared", phase)
	}
	w.driver.setRefusal(nil)
	w.until("the pod to run", w.running("p"))
}

func TestClaimOfAnotherPodIsRefused(t *testing.T) {
	w := newWorld(t, newClaim("one", []string{"a"}, []string{"somebody"}), newPod("p", "one", "a"))
	w.emulate()
	w.until("an event", func(ctx context.Context) bool {
		events, err := w.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return strings.Contains(e.Message, "not allowed to use ResourceClaim one")
		})
	})
	if got := w.driver.count("claim-one"); got != 0 {
		t.Errorf("the claim was prepared for a pod that it is not reserved for")
	}
}

func TestRestart(t *testing.T) {
	w := newWorld(t, newClaim("one", []string{"a"}, []string{"p"}), newPod("p", "one", "a"))
	stop := w.emulate()
	w.until("the pod to run", w.running("p"))
	stop()

	w.emulate()
	w.until("the claim to be prepared again, as a kubelet does", func(context.Context) bool { return w.driver.count("claim-one") == 2 })
	w.remove("p")
	if got := w.driver.count("claim-one"); got != 0 {
		t.Errorf("the claim is still prepared although its pod is gone")
	}
}

func TestNodeIsAlive(t *testing.T) {
	w := newWorld(t)
	w.emulate()
	w.until("a lease", func(ctx context.Context) bool {
		var lease *coordinationv1.Lease
		lease, err := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, testNode, metav1.GetOptions{})
		return err == nil && lease.Spec.RenewTime != nil
	})
	node, err := w.client.CoreV1().Nodes().Get(t.Context(), testNode, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := node.Status.Conditions[0]; c.Type != corev1.NodeReady || c.Status != corev1.ConditionTrue {
		t.Errorf("the node is not ready: %+v", node.Status.Conditions)
	}
}

func TestNodeIsRegisteredThoughOthersWriteToIt(t *testing.T) {
	client := fake.NewClientset()
	conflicts := 2
	client.PrependReactor("update", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts--; conflicts < 0 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), testNode, errors.New("it was changed"))
	})
	if err := registerNode(t.Context(), client, testNode); err != nil {
		t.Fatal(err)
	}
	if conflicts >= 0 {
		t.Error("no conflict was met")
	}
}

func TestAcceptable(t *testing.T) {
	for name, tc := range map[string]struct {
		info *registrationv1.PluginInfo
		want string // in the error; empty for none
	}{
		"a DRA driver": {&registrationv1.PluginInfo{Type: registrationv1.DRAPlugin, SupportedVersions: []string{drav1.DRAPluginService}}, ""},
		"another kind": {&registrationv1.PluginInfo{Type: registrationv1.CSIPlugin, SupportedVersions: []string{drav1.DRAPluginService}}, `of type "CSIPlugin"`},
		"an old driver": {&registrationv1.PluginInfo{Type: registrationv1.DRAPlugin, SupportedVersions: []string{"v1beta1.DRAPlugin"}},
			`"v1.DRAPlugin" is needed`},
	} {
		t.Run(name, func(t *testing.T) {
			err := acceptable(tc.info)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}
