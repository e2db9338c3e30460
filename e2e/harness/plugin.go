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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// AwaitPlugin waits until the plugin's pod is the latest and ready.
func (c *Cluster) AwaitPlugin(ctx context.Context) error {
	return Await(ctx, "the plugin's pod in namespace "+Namespace, func(ctx context.Context) (string, error) {
		set, err := c.Client.AppsV1().DaemonSets(Namespace).Get(ctx, pluginName, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		s := set.Status
		if s.ObservedGeneration < set.Generation || s.DesiredNumberScheduled == 0 || s.UpdatedNumberScheduled < s.DesiredNumberScheduled {
			return "it is not up to date", nil
		}
		pods, err := c.pluginPods(ctx)
		if err != nil {
			return "", err
		}
		if len(pods) != 1 {
			return fmt.Sprintf("there are %d pods", len(pods)), nil
		}
		if Ready(&pods[0]) {
			return "", nil
		}
		if restarts(&pods[0]) >= 3 {
			return "", Hopeless(errors.New(Describe(&pods[0])))
		}
		return Describe(&pods[0]), nil
	})
}

func restarts(pod *corev1.Pod) (count int32) {
	for _, s := range pod.Status.ContainerStatuses {
		count += s.RestartCount
	}
	return count
}

func (c *Cluster) pluginPods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := c.Client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: pluginSelector})
	if err != nil {
		return nil, fmt.Errorf("list the plugin's pods: %w", err)
	}
	return list.Items, nil
}

// PluginPod is the plugin's only pod. There is none where the node is emulated.
func (c *Cluster) PluginPod(ctx context.Context) (*corev1.Pod, error) {
	pods, err := c.pluginPods(ctx)
	if err != nil {
		return nil, err
	}
	if len(pods) != 1 {
		return nil, fmt.Errorf("the plugin has %d pods instead of one", len(pods))
	}
	return &pods[0], nil
}

// DeletePlugin ends the plugin and returns when it has ended. Something starts
// another.
func (c *Cluster) DeletePlugin(ctx context.Context) error {
	pod, err := c.PluginPod(ctx)
	if err != nil {
		return err
	}
	if err := c.Client.CoreV1().Pods(Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return c.AwaitGone(ctx, Namespace, pod.Name, pod.UID)
}

// RestartPlugin replaces the plugin's process and waits for the new one.
func (c *Cluster) RestartPlugin(ctx context.Context) error {
	if c.Emulated {
		return c.restartEmulatedPlugin(ctx)
	}
	if err := c.DeletePlugin(ctx); err != nil {
		return err
	}
	return c.AwaitPlugin(ctx)
}

// PluginLog is the end of the plugin's log.
func (c *Cluster) PluginLog(ctx context.Context, lines int) string {
	if c.Emulated {
		return lastOf(c.emulatorLog(), lines)
	}
	pods, err := c.pluginPods(ctx)
	if err != nil {
		return err.Error()
	}
	var all strings.Builder
	for _, pod := range pods {
		text, err := c.Client.CoreV1().Pods(Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: ptr.To(int64(lines))}).DoRaw(ctx)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&all, "pod %s:\n%s\n", pod.Name, text)
	}
	return all.String()
}

// AwaitGPUs waits until just those GPUs are published that are there.
func (c *Cluster) AwaitGPUs(ctx context.Context) error {
	_, err := c.AwaitPublished(ctx, "the GPUs", func(devices []Device) string { return c.Missing(ctx, devices) })
	return err
}

// Missing says how the GPUs of the devices, or their driver, are others than are
// there, if they are.
func (c *Cluster) Missing(ctx context.Context, devices []Device) string {
	state, err := c.GPUs.State(ctx)
	if err != nil {
		return err.Error()
	}
	published := map[string]bool{}
	release, _, _ := strings.Cut(state.Driver.Version, ".")
	for _, d := range devices {
		if d.Driver != "" && !strings.HasPrefix(d.Driver, release+".") {
			return fmt.Sprintf("%s is published with driver %s, which is now %s", d.Name, d.Driver, state.Driver.Version)
		}
		published[d.GPU] = true
	}
	want := present(state)
	for _, g := range state.GPUs {
		// One in MIG mode has something to offer or not, as it is configured.
		if g.MIG.Current && len(g.Instances) == 0 && !published[g.UUID] {
			delete(want, g.UUID)
		}
	}
	if !maps.Equal(published, want) {
		return fmt.Sprintf("the node has %d GPUs to offer, published are %d: %s", len(want), len(published),
			strings.Join(slices.Sorted(maps.Keys(published)), ", "))
	}
	return ""
}

// AwaitPublished waits until check has nothing to say about the node's devices,
// and returns them.
func (c *Cluster) AwaitPublished(ctx context.Context, what string, check func([]Device) string) ([]Device, error) {
	var devices []Device
	err := Await(ctx, "ResourceSlices with "+what, func(ctx context.Context) (_ string, err error) {
		if devices, err = c.Devices(ctx); err != nil {
			return "", err
		}
		return check(devices), nil
	})
	return devices, err
}
