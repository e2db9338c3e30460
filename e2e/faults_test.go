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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/memslice/memslice/e2e/harness"
)

func faultScenarios() []scenario {
	return []scenario{
		{gets: "seven GPUs when the eighth cannot tell its memory, and the eighth when it can again", run: oneFails},                          // 13
		{gets: "GPUs that are gone while the driver is unloaded, and back when it is loaded", run: driverReloaded},                            // 12
		{gets: "the right device node after a card was taken out, though the numbers of the others have moved", run: cardRemoved},             // 14
		{gets: "a plugin that waits, not ready, until the driver is loaded, and pods that end meanwhile", containers: true, run: driverLater}, // 12, 18
	}
}

func oneFails(k *kit) {
	before, err := k.Devices(k.ctx)
	k.ok(err)
	uuid := before[0].GPU
	k.ok(k.GPUs.Do(k.ctx, "set", "gpu", uuid, "--fail", "memoryInfo=UNKNOWN"))
	k.afterward(func() error { return k.GPUs.Do(k.ctx, "set", "gpu", uuid, "--clear-failures") })
	// A plugin that knew the figure goes on with it; a new one does not know it.
	k.ok(k.RestartPlugin(k.ctx))
	var now []harness.Device
	k.ok(harness.Await(k.ctx, "the share of GPU "+uuid+" to be withdrawn", func(ctx context.Context) (_ string, err error) {
		now, err = k.Devices(ctx)
		if slices.ContainsFunc(now, func(d harness.Device) bool { return d.Type == harness.TypeShare && d.GPU == uuid }) {
			return "it is published", err
		}
		return "", err
	}))
	others := func(devices []harness.Device) []harness.Device {
		return slices.DeleteFunc(slices.Clone(devices), func(d harness.Device) bool { return d.GPU == uuid })
	}
	if was, is := others(before), others(now); !slices.Equal(was, is) {
		k.Errorf("the other GPUs are published otherwise:\n%+v\nbefore:\n%+v", is, was)
	}
	k.start("a", share("gpu", "4Gi"))
	k.sees(k.running("a"), mainContainer, k.grant("a"))

	k.ok(k.GPUs.Do(k.ctx, "set", "gpu", uuid, "--clear-failures"))
	k.ok(harness.Await(k.ctx, "all GPUs to be published as before", func(ctx context.Context) (string, error) {
		if now, err = k.Devices(ctx); err != nil || slices.Equal(now, before) {
			return "", err
		}
		return fmt.Sprintf("published are %d devices of %d", len(now), len(before)), nil
	}))
}

func driverReloaded(k *kit) {
	before, err := k.Devices(k.ctx)
	k.ok(err)
	k.ok(k.GPUs.Do(k.ctx, "unload"))
	k.afterward(func() error { return k.GPUs.Do(k.ctx, "load") })
	k.ok(k.AwaitGPUs(k.ctx))
	if now, err := k.Devices(k.ctx); err != nil || len(now) != 0 {
		k.Errorf("without a driver %+v are published, %v", now, err)
	}
	k.start("a", share("gpu", "4Gi"))
	k.pending("a")

	k.ok(k.GPUs.Do(k.ctx, "load"))
	k.ok(k.AwaitGPUs(k.ctx))
	if now, err := k.Devices(k.ctx); err != nil || !slices.Equal(now, before) {
		k.Errorf("published are %+v, %v; before the driver was unloaded %+v", now, err, before)
	}
	k.sees(k.running("a"), mainContainer, k.grant("a"))
}

func cardRemoved(k *kit) {
	before, err := k.Devices(k.ctx)
	k.ok(err)
	first, second := before[0].GPU, before[1].GPU
	node, err := k.GPUs.Node(k.ctx, second)
	k.ok(err)
	onSecond := matching(`device.attributes["gpu.memslice.dev"].uuid == "` + second + `"`)
	k.start("early", share("gpu", "4Gi", onSecond))
	k.sees(k.running("early"), mainContainer, k.grant("early"))

	k.ok(k.GPUs.Do(k.ctx, "remove-gpu", first))
	k.afterward(func() error { return k.GPUs.Do(k.ctx, "add-gpu", first) })
	k.ok(k.AwaitGPUs(k.ctx))
	now, err := k.Devices(k.ctx)
	k.ok(err)
	left := slices.DeleteFunc(slices.Clone(before), func(d harness.Device) bool { return d.GPU == first })
	if !slices.Equal(now, left) {
		k.Errorf("published are %+v, want what was before without the card: %+v", now, left)
	}
	if moved, err := k.GPUs.Node(k.ctx, second); err != nil || moved == node {
		k.Errorf("GPU %s was expected to move from %s, it is %s, %v", second, node, moved, err)
	}
	k.start("late", share("gpu", "4Gi", onSecond))
	k.sees(k.running("late"), mainContainer, k.grant("late"))
	k.remove("early")
}

func driverLater(k *kit) {
	k.start("old", share("gpu", "4Gi"))
	k.running("old")
	k.ok(k.GPUs.Do(k.ctx, "unload"))
	k.afterward(func() error { return k.GPUs.Do(k.ctx, "load") })
	k.ok(k.DeletePlugin(k.ctx))

	waiting := k.awaitPluginPod("have started and not be ready", func(pod *corev1.Pod, status corev1.ContainerStatus) bool {
		return status.Started != nil && *status.Started && !harness.Ready(pod)
	})
	// A pod that ends needs no driver.
	k.remove("old")

	k.ok(k.GPUs.Do(k.ctx, "load"))
	serving := k.awaitPluginPod("be ready", func(pod *corev1.Pod, _ corev1.ContainerStatus) bool { return harness.Ready(pod) })
	if waiting.UID != serving.UID || serving.Status.ContainerStatuses[0].RestartCount != 0 {
		k.Errorf("the plugin was started again before it served: pod %s, then %s with %d restarts",
			waiting.Name, serving.Name, serving.Status.ContainerStatuses[0].RestartCount)
	}
	k.ok(k.AwaitGPUs(k.ctx))
	k.start("new", share("gpu", "4Gi"))
	k.sees(k.running("new"), mainContainer, k.grant("new"))
}

func (k *kit) awaitPluginPod(what string, is func(*corev1.Pod, corev1.ContainerStatus) bool) *corev1.Pod {
	k.Helper()
	var found *corev1.Pod
	k.ok(harness.Await(k.ctx, "the plugin to "+what, func(ctx context.Context) (string, error) {
		pod, err := k.PluginPod(ctx)
		if err != nil {
			return "", err
		}
		if len(pod.Status.ContainerStatuses) != 1 || !is(pod, pod.Status.ContainerStatuses[0]) {
			return harness.Describe(pod), nil
		}
		found, err = k.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return "", err
	}))
	return found
}
