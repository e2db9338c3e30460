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
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/e2e/harness"
)

// onOneNode are placements on a node with eight GPUs, like the real one.
func onOneNode() []scenario {
	return []scenario{
		{gets: "sixteen pods at once on eight GPUs, two on each, with the label for spreading", run: func(k *kit) { // 19
			k.twoOnEach(k.placeAtOnce(spreading, map[string]string{corev1.LabelHostname: secondNode}), 8)
		}},
		{gets: "sixteen pods at once on one GPU of eight, without it", run: func(k *kit) { // 19
			if got := k.placeAtOnce(nil, map[string]string{corev1.LabelHostname: secondNode}); len(got) != 1 {
				k.Errorf("pods by GPU: %v, want all on one, where there is room for them", got)
			}
		}},
	}
}

// onTwoNodes are placements on the real node, with four GPUs, and one like it.
func onTwoNodes() []scenario {
	return []scenario{
		{gets: "sixteen pods at once on the eight GPUs of two nodes, two on each, with the label for spreading", run: func(k *kit) { // 19
			k.twoOnEach(k.placeAtOnce(spreading, nil), 8)
		}},
		{gets: "sixteen pods at once on one GPU of each of two nodes at most, without it", run: func(k *kit) { // 19
			if got := k.placeAtOnce(nil, nil); len(got) > 2 {
				k.Errorf("pods by GPU: %v, want one GPU of each node at most", got)
			}
		}},
	}
}

// secondNode has no kubelet: pods are placed on it, and nothing else happens.
const secondNode = "second"

// placeAtOnce makes the second node, creates sixteen claims of 4Gi with the labels
// and pods for them, and returns how many got each GPU.
func (k *kit) placeAtOnce(labels, nodeSelector map[string]string) map[string]int {
	k.Helper()
	k.addNode()
	names := make([]string, 16)
	failed := make([]error, len(names))
	var work sync.WaitGroup
	for i := range names {
		names[i] = fmt.Sprintf("p%02d", i)
		work.Go(func() { failed[i] = k.createBoth(names[i], labels, nodeSelector, oneShare("4Gi")) })
	}
	work.Wait()
	k.ok(errors.Join(failed...))
	count := map[string]int{}
	for _, name := range names {
		result := k.allocated(name).Status.Allocation.Devices.Results[0]
		count[result.Pool+"/"+result.Device]++
	}
	return count
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
func (k *kit) createBoth(name string, labels, nodeSelector map[string]string, devices resourceapi.DeviceClaim) error {
	_, err := k.Client.ResourceV1().ResourceClaims(k.ns).Create(k.ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: resourceapi.ResourceClaimSpec{Devices: devices},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod := newPod(name, []string{name}, newContainer(mainContainer, all(name)))
	pod.Spec.NodeSelector = nodeSelector
	_, err = k.Client.CoreV1().Pods(k.ns).Create(k.ctx, pod, metav1.CreateOptions{})
	return err
}

// oneShare is all that a claim asks for.
func oneShare(memory string) resourceapi.DeviceClaim {
	return resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{share("gpu", memory)}}
}

// addNode makes a node with the GPUs of the real one under other names. It is
// there until the scenario ends, and its pods with it.
func (k *kit) addNode() {
	k.Helper()
	nodes, slices := k.Client.CoreV1().Nodes(), k.Client.ResourceV1().ResourceSlices()
	real, err := nodes.Get(k.ctx, k.NodeName, metav1.GetOptions{})
	k.ok(err)
	list, err := slices.List(k.ctx, metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + k.NodeName})
	k.ok(err)
	ours := metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + secondNode}
	k.afterward(func() error {
		return errors.Join(slices.DeleteCollection(k.ctx, metav1.DeleteOptions{}, ours), nodes.Delete(k.ctx, secondNode, metav1.DeleteOptions{}))
	})
	// Without the label of its operating system it gets no plugin.
	_, err = nodes.Create(k.ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: secondNode, Labels: map[string]string{corev1.LabelHostname: secondNode}}, Status: real.Status,
	}, metav1.CreateOptions{})
	k.ok(err)
	// A new node is tainted until the controller manager has seen that it is
	// ready; pods would all go to the other one.
	k.ok(harness.Await(k.ctx, "node "+secondNode+" to take pods", func(ctx context.Context) (string, error) {
		node, err := nodes.Get(ctx, secondNode, metav1.GetOptions{})
		if err != nil || len(node.Spec.Taints) == 0 {
			return "", err
		}
		return fmt.Sprintf("it has the taints %v", node.Spec.Taints), nil
	}))
	for i, slice := range list.Items {
		slice.ObjectMeta = metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", secondNode, i)}
		slice.Spec.NodeName = ptr.To(secondNode)
		slice.Spec.Pool.Name = secondNode + strings.TrimPrefix(slice.Spec.Pool.Name, k.NodeName)
		for _, device := range slice.Spec.Devices {
			for _, name := range []resourceapi.QualifiedName{"uuid", "parentUUID"} {
				value := "second-" + *device.Attributes[name].StringValue
				device.Attributes[name] = resourceapi.DeviceAttribute{StringValue: &value}
			}
		}
		_, err := slices.Create(k.ctx, &slice, metav1.CreateOptions{})
		k.ok(err)
	}
}
