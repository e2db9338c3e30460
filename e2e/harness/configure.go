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
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// syncAnnotation, on the plugin's pod, has the kubelet look at it, and with it
// at the ConfigMaps that it mounts, at once instead of within a minute or two.
const syncAnnotation = "e2e.memslice.dev/sync"

// Configure installs the chart with values in addition to those that this cluster
// needs, as YAML, and returns when the plugin finds its file as the chart made
// it. Without values the nodes are as the chart has them. The plugin reads the
// file with its next look at the GPUs.
func (c *Cluster) Configure(ctx context.Context, values string) error {
	if c.configured != nil && *c.configured == values {
		return nil
	}
	if err := c.upgrade(ctx, values); err != nil {
		return err
	}
	if !c.Emulated {
		if err := c.AwaitPlugin(ctx); err != nil {
			return err
		}
	}
	return c.deliver(ctx)
}

// ReplaceNodeConfig changes the plugin's file behind the chart's back, as "kubectl
// edit" would. The next Configure is what puts it right again.
func (c *Cluster) ReplaceNodeConfig(ctx context.Context, text string) error {
	object, _, err := c.nodeConfig(ctx)
	if err != nil {
		return err
	}
	for name := range object.Data {
		object.Data[name] = text
	}
	c.configured = nil
	if _, err := c.Client.CoreV1().ConfigMaps(Namespace).Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("change ConfigMap %s: %w", object.Name, err)
	}
	return c.deliver(ctx)
}

// upgrade installs the chart with values in addition.
func (c *Cluster) upgrade(ctx context.Context, more string) error {
	own, err := c.values()
	if err != nil {
		return err
	}
	args := []string{"upgrade", "--install", "memslice", filepath.Join(c.options.Root, "deployments", "helm", "memslice"),
		"--namespace", Namespace, "--create-namespace",
		// What somebody edited is put right.
		"--force-conflicts"}
	// The later win.
	for _, values := range []struct {
		file string
		text []byte
	}{{valuesFile, own}, {"memslice-more-values.yaml", []byte(more)}} {
		file := filepath.Join(c.status.Dir, "conf", values.file)
		if err := os.WriteFile(file, values.text, 0o644); err != nil {
			return fmt.Errorf("write the chart's values: %w", err)
		}
		args = append(args, "--values", file)
	}
	c.configured = nil
	if _, err := c.tools.run(ctx, nil, "helm", args...); err != nil {
		return err
	}
	c.configured = &more
	return nil
}

// nodeConfig is the ConfigMap that the plugin mounts, and the name of that volume.
func (c *Cluster) nodeConfig(ctx context.Context) (*corev1.ConfigMap, string, error) {
	set, err := c.Client.AppsV1().DaemonSets(Namespace).Get(ctx, pluginName, metav1.GetOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("find the plugin's configuration: %w", err)
	}
	volumes := set.Spec.Template.Spec.Volumes
	at := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil })
	if at < 0 {
		return nil, "", errors.New("the plugin mounts no ConfigMap, so it has no configuration file")
	}
	object, err := c.Client.CoreV1().ConfigMaps(Namespace).Get(ctx, volumes[at].ConfigMap.Name, metav1.GetOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("get the plugin's configuration: %w", err)
	}
	if len(object.Data) != 1 {
		return nil, "", fmt.Errorf("ConfigMap %s has the files %q instead of one", object.Name, slices.Sorted(maps.Keys(object.Data)))
	}
	return object, volumes[at].Name, nil
}

// deliver returns when the file that the plugin reads is the ConfigMap's.
func (c *Cluster) deliver(ctx context.Context) error {
	object, volume, err := c.nodeConfig(ctx)
	if err != nil {
		return err
	}
	for name, text := range object.Data {
		if c.Emulated {
			return replaceFile(c.emulatedConfig(), text)
		}
		return Await(ctx, "the plugin's pod to have its changed file", func(ctx context.Context) (string, error) {
			return c.sync(ctx, filepath.Join("volumes", "kubernetes.io~configmap", volume, name), text)
		})
	}
	return nil
}

// sync has the kubelet look at the plugin's pod, and tells whether a file of the
// pod's has its text by now.
func (c *Cluster) sync(ctx context.Context, name, text string) (string, error) {
	pod, err := c.PluginPod(ctx)
	if err != nil {
		return "", err
	}
	file := filepath.Join(c.KubeletRoot(), "pods", string(pod.UID), name)
	if got, err := os.ReadFile(file); err != nil || string(got) == text {
		return "", err
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, syncAnnotation, strconv.FormatInt(time.Now().UnixNano(), 10))
	_, err = c.Client.CoreV1().Pods(Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return file + " is as it was", err
}

// replaceFile leaves no moment in which the file is half-written.
func replaceFile(path, text string) error {
	next := path + ".next"
	err := os.WriteFile(next, []byte(text), 0o644)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("write the plugin's configuration: %w", err)
	}
	return nil
}
