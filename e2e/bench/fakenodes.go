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
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/e2e/harness"
)

// heartbeat is well within the 50 seconds after which the node lifecycle
// controller taints a node whose lease was not renewed.
const heartbeat = 15 * time.Second

// addNodes makes nodes and waits until pods may be placed on them.
func addNodes(ctx context.Context, client kubernetes.Interface, machines []machine) error {
	err := each(ctx, machines, func(ctx context.Context, m machine) error {
		if _, err := client.CoreV1().Nodes().Create(ctx, node(m.name), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", m.name, err)
		}
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: m.name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &m.name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NowMicro())},
		}
		if _, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create the lease of node %s: %w", m.name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return harness.Await(ctx, "the nodes to be without taints", func(ctx context.Context) (string, error) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", fmt.Errorf("list nodes: %w", err)
		}
		for _, n := range nodes.Items {
			if len(n.Spec.Taints) > 0 {
				return fmt.Sprintf("%s has %s", n.Name, n.Spec.Taints[0].Key), nil
			}
		}
		return "", nil
	})
}

// keepAlive renews the nodes' leases, as kubelets would, until ctx ends.
func keepAlive(ctx context.Context, client kubernetes.Interface, machines []machine) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		}
		renewal := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
		err := each(ctx, machines, func(ctx context.Context, m machine) error {
			_, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, m.name, types.MergePatchType, renewal, metav1.PatchOptions{})
			return err
		})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("renew the leases of the nodes: %w", err)
		}
	}
}
