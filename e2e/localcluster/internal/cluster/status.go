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

package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/memslice/memslice/e2e/localcluster/internal/state"
)

// Status is what others have to know to use the cluster. The names are an
// interface: scripts and tests read them.
type Status struct {
	// Up says that everything is ready; Problem is what is not.
	Up                bool       `json:"up"`
	Problem           string     `json:"problem,omitempty"`
	Dir               string     `json:"dir"`
	KubernetesVersion string     `json:"kubernetesVersion"`
	Kubeconfig        string     `json:"kubeconfig"`
	APIServerHost     string     `json:"apiServerHost"`
	APIServerPort     int        `json:"apiServerPort"`
	Node              state.Node `json:"node"` // real or none
	NodeReason        string     `json:"nodeReason,omitempty"`
	NodeName          string     `json:"nodeName"`
	// Paths that hold sockets are short ones; they are the same inside and
	// outside of the node.
	KubeletRootDir   string `json:"kubeletRootDir"`
	CDIDir           string `json:"cdiDir"`
	ContainerdSocket string `json:"containerdSocket,omitempty"`
	LogDir           string `json:"logDir"`
	// MountNamespace is the file of the node's mount namespace, for nsenter.
	MountNamespace string `json:"mountNamespace,omitempty"`
	// CgroupRoot is the path of the node's cgroup below each hierarchy's root.
	CgroupRoot string            `json:"cgroupRoot,omitempty"`
	Components []ComponentStatus `json:"components"`
}

// ComponentStatus is the state of one process.
type ComponentStatus struct {
	Name    string `json:"name"`
	PID     int    `json:"pid,omitempty"`
	Ready   bool   `json:"ready"`
	Problem string `json:"problem,omitempty"`
	Log     string `json:"log"`
}

// Status looks at the cluster, which must exist.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	s, err := c.existing()
	if err != nil {
		return Status{}, err
	}
	l := c.layout
	status := Status{
		Dir:               l.Dir,
		KubernetesVersion: s.KubernetesVersion,
		Kubeconfig:        l.Kubeconfig(),
		APIServerHost:     "127.0.0.1",
		APIServerPort:     s.Ports.APIServer,
		Node:              s.Node,
		NodeReason:        s.NodeReason,
		NodeName:          s.NodeName,
		KubeletRootDir:    l.KubeletRoot(),
		CDIDir:            l.CDI(),
		LogDir:            l.LogDir(),
	}
	if s.Node == state.Real {
		status.ContainerdSocket = l.ContainerdSocket()
		status.CgroupRoot = "/" + l.CgroupRoot()
		status.MountNamespace = l.Namespace()
	}
	if api, err := newClient(l, s); err == nil {
		for _, comp := range c.components(s, api) {
			status.Components = append(status.Components, c.componentStatus(ctx, comp))
		}
	}
	if err := c.check(ctx, s); err != nil {
		status.Problem = err.Error()
	}
	status.Up = status.Problem == ""
	return status, nil
}

func (c *Cluster) componentStatus(ctx context.Context, comp component) ComponentStatus {
	status := ComponentStatus{Name: comp.name, Log: c.layout.Log(comp.name)}
	id, err := c.identity(comp.name)
	switch {
	case err != nil:
		status.Problem = err.Error()
	case !id.Alive():
		status.Problem = "does not run"
	default:
		status.PID = id.PID
		if err := comp.ready(ctx); err != nil {
			status.Problem = err.Error()
		} else {
			status.Ready = true
		}
	}
	return status
}

// Log returns the last lines of a component's log; all of it if lines is 0.
func (c *Cluster) Log(name string, lines int) (string, error) {
	known, err := c.Logs()
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(c.layout.Log(name))
	if err != nil {
		return "", fmt.Errorf("read the log of %s: %w: there are logs of %s", name, err, strings.Join(known, ", "))
	}
	text := string(data)
	if lines > 0 {
		all := strings.SplitAfter(text, "\n")
		text = strings.Join(all[max(0, len(all)-lines-1):], "")
	}
	return text, nil
}

// Logs names the components that have a log.
func (c *Cluster) Logs() ([]string, error) {
	entries, err := os.ReadDir(c.layout.LogDir())
	if err != nil {
		return nil, fmt.Errorf("list the cluster's logs: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), ".log"); ok {
			names = append(names, name)
		}
	}
	return names, nil
}
