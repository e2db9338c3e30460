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

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/memslice/memslice/e2e/containerview"
	"github.com/memslice/memslice/e2e/harness"
)

// What demo/quickstart contains.
const (
	namespace  = "quickstart"
	deployment = "shares"
)

// quickstart applies the manifests, waits for the pods and looks at each.
func quickstart(ctx context.Context, c *harness.Cluster, steps *harness.Steps) (*Result, error) {
	result := &Result{
		KubernetesVersion: c.KubernetesVersion, Kubeconfig: c.Kubeconfig, Namespace: namespace,
		NoContainers: c.EmulatedWhy, kubectl: c.KubectlPath(),
	}
	err := steps.Do("The quickstart: "+filepath.Join("demo", "quickstart"), func(say func(string)) error {
		printed, err := c.Kubectl(ctx, "apply", "--filename", filepath.Join(c.Root(), "demo", "quickstart"))
		if err != nil {
			return err
		}
		for line := range strings.Lines(printed) {
			say(strings.TrimSpace(line))
		}
		say("waiting for the pods to run")
		pods, err := awaitPods(ctx, c)
		if err != nil {
			return err
		}
		for i := range pods {
			row, err := look(ctx, c, &pods[i])
			if err != nil {
				return fmt.Errorf("pod %s/%s: %w", namespace, pods[i].Name, err)
			}
			result.Pods = append(result.Pods, row)
		}
		return nil
	})
	return result, err
}

// awaitPods returns the pods once all that were asked for run.
func awaitPods(ctx context.Context, c *harness.Cluster) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	err := harness.Await(ctx, "the pods in namespace "+namespace+" to run", func(ctx context.Context) (string, error) {
		d, err := c.Client.AppsV1().Deployments(namespace).Get(ctx, deployment, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if s := d.Status; s.ObservedGeneration < d.Generation || s.UpdatedReplicas != *d.Spec.Replicas || s.Replicas != *d.Spec.Replicas {
			return "Deployment " + deployment + " is not up to date", nil
		}
		list, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		pods = list.Items
		var waiting []string
		for i := range pods {
			if !harness.Ready(&pods[i]) || pods[i].DeletionTimestamp != nil {
				waiting = append(waiting, harness.Describe(&pods[i]))
			}
		}
		return strings.Join(waiting, "; "), nil
	})
	return pods, err
}

// look finds out what a pod was granted and checks that its container sees that.
func look(ctx context.Context, c *harness.Cluster, pod *corev1.Pod) (Row, error) {
	grants, err := c.PodGrants(ctx, pod)
	if err != nil {
		return Row{}, err
	}
	if len(grants) != 1 {
		return Row{}, fmt.Errorf("it was granted %d devices instead of one", len(grants))
	}
	grant := grants[0]
	view, err := c.Look(ctx, pod, pod.Spec.Containers[0].Name)
	if err != nil {
		return Row{}, fmt.Errorf("look into its container: %w", err)
	}
	node, err := c.GPUs.Node(ctx, grant.Device.UUID)
	if err != nil {
		return Row{}, err
	}
	sees, err := compare(grant, node, view)
	if err != nil {
		return Row{}, err
	}
	return Row{
		Pod: pod.Name, Node: pod.Spec.NodeName, Device: grant.Device.Name,
		GPU:     GPU{UUID: grant.Device.UUID, ID: harness.ShortID(grant.Device.UUID), Product: grant.Device.Product},
		Granted: Granted{Bytes: grant.Memory, Quantity: resource.NewQuantity(grant.Memory, resource.BinarySI).String()},
		Sees:    sees,
	}, nil
}

// compare fails where a container sees something else than was granted.
func compare(grant harness.Grant, node string, view containerview.View) (Sees, error) {
	bytes, err := view.Bytes(harness.MemoryVariable(grant.Request))
	if err != nil {
		return Sees{}, err
	}
	sees := Sees{MemoryBytes: bytes, UUID: view.Env[harness.UUIDVariable(grant.Request)], DeviceNodes: view.GPUNodes()}
	var wrong []error
	if sees.MemoryBytes != grant.Memory {
		wrong = append(wrong, fmt.Errorf("its container is told of %d bytes, granted were %d", sees.MemoryBytes, grant.Memory))
	}
	if sees.UUID != grant.Device.UUID {
		wrong = append(wrong, fmt.Errorf("its container is told of GPU %q, granted was %s", sees.UUID, grant.Device.UUID))
	}
	if len(sees.DeviceNodes) != 1 || sees.DeviceNodes[0] != node {
		wrong = append(wrong, fmt.Errorf("its container has the device nodes %q, granted was %s", sees.DeviceNodes, node))
	}
	return sees, errors.Join(wrong...)
}

// explain writes down what one would look at first, and names the file.
func explain(ctx context.Context, c *harness.Cluster, err error) error {
	if ctx.Err() != nil {
		return err
	}
	file := filepath.Join(c.LogDir, "demo-diagnosis.txt")
	if writeErr := os.WriteFile(file, []byte(c.Diagnose(ctx, namespace)), 0o644); writeErr != nil {
		return errors.Join(err, writeErr)
	}
	return fmt.Errorf("%w\n\nPods, events, claims and the plugin's log are in %s, other logs in %s", err, file, c.LogDir)
}
