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

package driver

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/config"
)

// nodeConfig is the configuration of this node as it is now: the file, and the
// node's labels, by which one of the file's documents is chosen. The file is
// read each time. The labels are asked for less often, as every node does so.
type nodeConfig struct {
	cfg    *config.Config
	client kubernetes.Interface
	now    func() time.Time

	labels map[string]string
	known  time.Time // when the labels were asked for; zero for never
}

// load must not be called at the same time.
func (n *nodeConfig) load(ctx context.Context) (*v1alpha1.NodeConfig, error) {
	if n.known.IsZero() || n.now().Sub(n.known) >= n.cfg.ReconcileInterval {
		if err := n.ask(ctx); err != nil && n.known.IsZero() {
			return nil, err
		} else if err != nil {
			klog.FromContext(ctx).Error(err, "Staying with the labels that are known", "labels", n.labels)
		}
	}
	return n.cfg.LoadNodeConfig(n.labels)
}

func (n *nodeConfig) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	node, err := n.client.CoreV1().Nodes().Get(ctx, n.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the labels of Node %s, by which its configuration is chosen: %w", n.cfg.NodeName, err)
	}
	n.labels, n.known = node.Labels, n.now()
	return nil
}
