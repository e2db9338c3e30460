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
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/memslice/memslice/e2e/harness"
)

// allOf4Gi is what a process can allocate of 4Gi beside its context.
const allOf4Gi = "3840Mi"

// outOfMemory is the exit status of cudaload when it gets no more memory.
const outOfMemory = 2

// loads is a container whose program uses its GPUs, as the arguments say.
func loads(name string, claims []corev1.ResourceClaim, args ...string) corev1.Container {
	c := newContainer(name, claims...)
	c.Command = append([]string{"cudaload"}, args...)
	return c
}

// load starts a pod whose only container uses the GPU of a claim.
func (k *kit) load(name, claim string, args ...string) *corev1.Pod {
	k.Helper()
	pod := newPod(name, []string{claim}, loads(mainContainer, []corev1.ResourceClaim{all(claim)}, args...))
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return k.create(pod)
}

// says waits until a container has said all the words, and returns what it said.
func (k *kit) says(pod, container string, words ...string) string {
	k.Helper()
	var said string
	k.ok(harness.Await(k.ctx, fmt.Sprintf("container %s of pod %s/%s to say %q", container, k.ns, pod, words), func(ctx context.Context) (string, error) {
		text, err := k.Client.CoreV1().Pods(k.ns).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
		if err != nil {
			return "", err
		}
		said = string(text)
		for _, word := range words {
			if !strings.Contains(said, word) {
				return "it said " + said, nil
			}
		}
		return "", nil
	}))
	return said
}

// holds waits until a container has all the memory that it asked for.
func (k *kit) holds(pod string) { k.Helper(); k.says(pod, mainContainer, "holding") }

// refusedMemory waits until the only container of a pod has ended for want of
// memory.
func (k *kit) refusedMemory(name string) {
	k.Helper()
	pod, err := k.AwaitPod(k.ctx, k.ns, name, "end", func(pod *corev1.Pod) string {
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			return ""
		}
		return harness.Describe(pod)
	})
	k.ok(err)
	said := k.says(name, mainContainer)
	status := pod.Status.ContainerStatuses[0].State.Terminated
	if status == nil || status.ExitCode != outOfMemory || !strings.Contains(said, "out of memory") {
		k.Errorf("pod %s: %+v, it said %s; want it out of memory", name, status, said)
	}
}

// refusedInside runs cudaload in a container that runs, where it must get no
// memory.
func (k *kit) refusedInside(pod *corev1.Pod, container string, args ...string) {
	k.Helper()
	out, err := k.Exec(k.ctx, pod, container, append([]string{"cudaload"}, args...)...)
	if err == nil || !strings.Contains(out+err.Error(), "out of memory") {
		k.Errorf("cudaload %q in container %s of pod %s: %v, %s; want it out of memory", args, container, pod.Name, err, out)
	}
}

// allowedInside is the opposite.
func (k *kit) allowedInside(pod *corev1.Pod, container string, args ...string) {
	k.Helper()
	if out, err := k.Exec(k.ctx, pod, container, append([]string{"cudaload"}, args...)...); err != nil {
		k.Errorf("cudaload %q in container %s of pod %s: %v, %s", args, container, pod.Name, err, out)
	}
}

// podEvent waits for an event on a pod.
func (k *kit) podEvent(pod, reason string, words ...string) string {
	k.Helper()
	object, err := k.Client.CoreV1().Pods(k.ns).Get(k.ctx, pod, metav1.GetOptions{})
	k.ok(err)
	message, err := k.AwaitEvent(k.ctx, object, reason, words...)
	k.ok(err)
	k.Log(message)
	return message
}

// shareStatus waits until check has nothing to say about a claim's status.
func (k *kit) shareStatus(claim string, check func(harness.ShareStatus) string) {
	k.Helper()
	k.ok(harness.Await(k.ctx, "the status of claim "+k.ns+"/"+claim, func(ctx context.Context) (string, error) {
		s, err := k.ShareStatus(ctx, k.ns, claim)
		if err != nil {
			return "", err
		}
		return check(s), nil
	}))
}
