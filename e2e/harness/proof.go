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
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/memslice/memslice/api/v1alpha1"
)

// ShareStatus is what a claim's status says of its only device of memslice's.
type ShareStatus struct {
	v1alpha1.ShareStatus
	Conditions map[string]string // by type: "True/Enforced"
}

// ShareStatus reads it.
func (c *Cluster) ShareStatus(ctx context.Context, namespace, claim string) (ShareStatus, error) {
	object, err := c.Client.ResourceV1().ResourceClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return ShareStatus{}, fmt.Errorf("get claim %s/%s: %w", namespace, claim, err)
	}
	for _, d := range object.Status.Devices {
		if d.Driver != DriverName || d.Data == nil {
			continue
		}
		s := ShareStatus{Conditions: map[string]string{}}
		if err := json.Unmarshal(d.Data.Raw, &s.ShareStatus); err != nil {
			return s, fmt.Errorf("the status of claim %s/%s: %w", namespace, claim, err)
		}
		for _, condition := range d.Conditions {
			s.Conditions[condition.Type] = string(condition.Status) + "/" + condition.Reason
		}
		return s, nil
	}
	return ShareStatus{}, fmt.Errorf("the status of claim %s/%s says nothing of a device of %s", namespace, claim, DriverName)
}

// metricsAddress is where the plugin serves its metrics. It is chosen once for a
// cluster, as a change of it replaces the plugin.
func (c *Cluster) metricsAddress() (string, error) {
	file := filepath.Join(c.status.Dir, "conf", "metrics-address")
	if known, err := os.ReadFile(file); err == nil {
		return string(known), nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port for the plugin's metrics: %w", err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return "", fmt.Errorf("find a port for the plugin's metrics: %w", err)
	}
	if err := os.WriteFile(file, []byte(address), 0o644); err != nil {
		return "", fmt.Errorf("note the address of the plugin's metrics: %w", err)
	}
	return address, nil
}

// AwaitMetric waits for a line of the plugin's metrics that has all the parts.
func (c *Cluster) AwaitMetric(ctx context.Context, parts ...string) error {
	address, err := c.metricsAddress()
	if err != nil {
		return err
	}
	return Await(ctx, fmt.Sprintf("a metric with %q", parts), func(ctx context.Context) (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			return "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return "", err
		}
		var ours []string
		for line := range strings.Lines(string(text)) {
			if hasAll(line, parts) {
				return "", nil
			}
			if strings.HasPrefix(line, "memslice_") {
				ours = append(ours, line)
			}
		}
		return "there is\n" + strings.Join(ours, ""), nil
	})
}

// Ordinal is the number that CUDA gives a GPU in a container.
func (c *Cluster) Ordinal(ctx context.Context, pod *corev1.Pod, container, uuid string) (int, error) {
	node, err := c.GPUs.Node(ctx, uuid)
	if err != nil {
		return 0, err
	}
	view, err := c.Look(ctx, pod, container)
	if err != nil {
		return 0, err
	}
	at := slices.Index(view.GPUNodes(), node)
	if at < 0 {
		return 0, fmt.Errorf("container %s of pod %s has the GPUs %q, and not %s", container, pod.Name, view.GPUNodes(), node)
	}
	return at, nil
}
