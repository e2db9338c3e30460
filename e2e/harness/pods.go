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

package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/e2e/containerview"
	"github.com/memslice/memslice/e2e/kubeletemu/emulator"
)

// Ready tells whether a pod runs and is ready.
func Ready(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && condition(pod, corev1.PodReady).Status == corev1.ConditionTrue
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if at < 0 {
		return corev1.PodCondition{}
	}
	return pod.Status.Conditions[at]
}

// Describe says in a line how a pod is.
func Describe(pod *corev1.Pod) string {
	text := fmt.Sprintf("pod %s is %s", pod.Name, pod.Status.Phase)
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			text += fmt.Sprintf(", %s: %s", c.Type, c.Message)
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if waiting := s.State.Waiting; waiting != nil {
			text += fmt.Sprintf(", container %s waits: %s %s", s.Name, waiting.Reason, waiting.Message)
		}
	}
	return text
}

// AwaitPod waits for something to be true of a pod; check is as for Await.
func (c *Cluster) AwaitPod(ctx context.Context, namespace, name, what string, check func(*corev1.Pod) string) (*corev1.Pod, error) {
	var pod *corev1.Pod
	err := Await(ctx, fmt.Sprintf("pod %s/%s to %s", namespace, name, what), func(ctx context.Context) (now string, err error) {
		pod, err = c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return check(pod), nil
	})
	return pod, err
}

// AwaitRunning waits until a pod runs and is ready.
func (c *Cluster) AwaitRunning(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return c.AwaitPod(ctx, namespace, name, "run", func(pod *corev1.Pod) string {
		if Ready(pod) {
			return ""
		}
		return Describe(pod)
	})
}

// AwaitUnschedulable waits until the scheduler has given up on a pod for now, and
// returns its reason.
func (c *Cluster) AwaitUnschedulable(ctx context.Context, namespace, name string) (string, error) {
	pod, err := c.AwaitPod(ctx, namespace, name, "be found unschedulable", func(pod *corev1.Pod) string {
		if condition(pod, corev1.PodScheduled).Reason == corev1.PodReasonUnschedulable {
			return ""
		}
		return Describe(pod)
	})
	if err != nil {
		return "", err
	}
	return condition(pod, corev1.PodScheduled).Message, nil
}

// AwaitEvent waits for an event about a pod, with the given words in its message,
// which it returns.
func (c *Cluster) AwaitEvent(ctx context.Context, pod *corev1.Pod, reason string, words ...string) (string, error) {
	var message string
	what := fmt.Sprintf("an event %s about pod %s/%s that has %q", reason, pod.Namespace, pod.Name, words)
	err := Await(ctx, what, func(ctx context.Context) (string, error) {
		events, err := c.Client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
		if err != nil {
			return "", err
		}
		var others []string
		for _, e := range events.Items {
			missing := slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Message, word) })
			if e.Reason == reason && !missing {
				message = e.Message
				return "", nil
			}
			others = append(others, e.Reason+": "+e.Message)
		}
		return "its events are " + strings.Join(others, "; "), nil
	})
	return message, err
}

// AwaitGone waits until a pod does not exist any more.
func (c *Cluster) AwaitGone(ctx context.Context, namespace, name string, uid types.UID) error {
	return Await(ctx, fmt.Sprintf("pod %s/%s to be gone", namespace, name), func(ctx context.Context) (string, error) {
		pod, err := c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && pod.UID != uid {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		return Describe(pod), nil
	})
}

// Exec runs a command in a container and returns what it printed.
func (c *Cluster) Exec(ctx context.Context, pod *corev1.Pod, container string, command ...string) (string, error) {
	return c.Kubectl(ctx, append([]string{"exec", "--namespace", pod.Namespace, pod.Name, "--container", container, "--"}, command...)...)
}

// Look tells what a container of a running pod finds of its GPUs. Where the node
// is emulated, it is what the container would find.
func (c *Cluster) Look(ctx context.Context, pod *corev1.Pod, container string) (containerview.View, error) {
	if c.Emulated {
		views, err := emulator.Views(pod)
		return views[container], err
	}
	output, err := c.Exec(ctx, pod, container, "sh", "-c", containerview.Script())
	if err != nil {
		return containerview.View{}, err
	}
	return containerview.Parse(output)
}
