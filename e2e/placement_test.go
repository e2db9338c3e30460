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
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// onOneNode are placements on a node with eight GPUs.
func onOneNode() []scenario {
	return []scenario{
		{gets: "sixteen pods at once on eight GPUs, two on each, with the label for spreading", run: func(k *kit) { // 19
			k.twoOnEach(k.placeAtOnce(spreading, "first"), 8)
		}},
		{gets: "sixteen pods at once on one GPU of eight, without it", run: func(k *kit) { // 19
			if got := k.placeAtOnce(nil, "first"); len(got) != 1 {
				k.Errorf("pods by GPU: %v, want all on one, where there is room for them", got)
			}
		}},
	}
}

// onTwoNodes are placements on two nodes with four GPUs each.
func onTwoNodes() []scenario {
	return []scenario{
		{gets: "sixteen pods at once on the eight GPUs of two nodes, two on each, with the label for spreading", run: func(k *kit) { // 19
			k.twoOnEach(k.placeAtOnce(spreading, "first", "second"), 8)
		}},
		{gets: "sixteen pods at once on one GPU of each of two nodes at most, without it", run: func(k *kit) { // 19
			if got := k.placeAtOnce(nil, "first", "second"); len(got) > 2 {
				k.Errorf("pods by GPU: %v, want one GPU of each node at most", got)
			}
		}},
	}
}

// placementOnly is a label of nodes that have no kubelet: pods are placed on them,
// and nothing else happens.
const placementOnly = "e2e.memslice.dev/placement-only"

// placeAtOnce makes nodes, creates sixteen claims of 4Gi with the labels and pods
// for them that go to these nodes, and returns how many got each GPU.
func (k *kit) placeAtOnce(labels map[string]string, nodes ...string) map[string]int {
	k.Helper()
	for _, name := range nodes {
		k.addNode(name)
	}
	pods := make([]string, 16)
	failed := make([]error, len(pods))
	var work sync.WaitGroup
	for i := range pods {
		pods[i] = fmt.Sprintf("p%02d", i)
		work.Go(func() { failed[i] = k.createBoth(pods[i], labels, oneShare("4Gi"), toPlacementOnly) })
	}
	work.Wait()
	k.ok(errors.Join(failed...))
	count := map[string]int{}
	for _, name := range pods {
		result := k.allocated(name).Status.Allocation.Devices.Results[0]
		count[result.Pool+"/"+result.Device]++
	}
	return count
}

// toPlacementOnly has a pod go to nodes without a kubelet. A new one is tainted
// until the control plane has seen that it is ready.
func toPlacementOnly(pod *corev1.Pod) {
	pod.Spec.NodeSelector = map[string]string{placementOnly: "true"}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

func (k *kit) twoOnEach(count map[string]int, gpus int) {
	k.Helper()
	for gpu, pods := range count {
		if pods != 2 {
			k.Errorf("%s got %d pods, want 2 on each of %d GPUs: %v", gpu, pods, gpus, count)
		}
	}
	if len(count) != gpus {
		k.Errorf("%d of %d GPUs got pods: %v", len(count), gpus, count)
	}
}

// createBoth creates a claim and a pod of the same name that uses it.
func (k *kit) createBoth(name string, labels map[string]string, devices resourceapi.DeviceClaim, changes ...func(*corev1.Pod)) error {
	_, err := k.Client.ResourceV1().ResourceClaims(k.ns).Create(k.ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: resourceapi.ResourceClaimSpec{Devices: devices},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod := newPod(name, []string{name}, newContainer(mainContainer, all(name)))
	for _, change := range changes {
		change(pod)
	}
	_, err = k.Client.CoreV1().Pods(k.ns).Create(k.ctx, pod, metav1.CreateOptions{})
	return err
}

// oneShare is all that a claim asks for.
func oneShare(memory string) resourceapi.DeviceClaim {
	return resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{share("gpu", memory)}}
}

// addNode makes a node with the GPUs of the real one under other names. It is
// there until the scenario ends, and its pods with it.
func (k *kit) addNode(name string) {
	k.Helper()
	nodes, slices := k.Client.CoreV1().Nodes(), k.Client.ResourceV1().ResourceSlices()
	original, err := nodes.Get(k.ctx, k.NodeName, metav1.GetOptions{})
	k.ok(err)
	list, err := slices.List(k.ctx, metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + k.NodeName})
	k.ok(err)
	its := metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + name}
	k.afterward(func() error {
		return errors.Join(slices.DeleteCollection(k.ctx, metav1.DeleteOptions{}, its), nodes.Delete(k.ctx, name, metav1.DeleteOptions{}))
	})
	// Without the label of its operating system it gets no plugin.
	_, err = nodes.Create(k.ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{placementOnly: "true"}}, Status: original.Status,
	}, metav1.CreateOptions{})
	k.ok(err)
	for i, slice := range list.Items {
		slice.ObjectMeta = metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)}
		slice.Spec.NodeName = ptr.To(name)
		slice.Spec.Pool.Name = name + strings.TrimPrefix(slice.Spec.Pool.Name, k.NodeName)
		for _, device := range slice.Spec.Devices {
			for _, attribute := range []resourceapi.QualifiedName{"uuid", "parentUUID"} {
				value := name + "-" + *device.Attributes[attribute].StringValue
				device.Attributes[attribute] = resourceapi.DeviceAttribute{StringValue: &value}
			}
		}
		_, err := slices.Create(k.ctx, &slice, metav1.CreateOptions{})
		k.ok(err)
	}
}
