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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
)

// status is the part of "localcluster status -o json" that matters here.
type status struct {
	Dir               string `json:"dir"`
	KubernetesVersion string `json:"kubernetesVersion"`
	Kubeconfig        string `json:"kubeconfig"`
	APIServerHost     string `json:"apiServerHost"`
	APIServerPort     int    `json:"apiServerPort"`
	Node              string `json:"node"` // real or none
	NodeReason        string `json:"nodeReason"`
	NodeName          string `json:"nodeName"`
	KubeletRootDir    string `json:"kubeletRootDir"`
	CDIDir            string `json:"cdiDir"`
	LogDir            string `json:"logDir"`

	Components []component `json:"components"`
}

type component struct {
	Name string `json:"name"`
	PID  int    `json:"pid"` // 0 where it does not run
}

// noNode is what localcluster calls a cluster whose node the harness emulates.
const noNode = "none"

// bringUp has the cluster brought up and returns what it is like.
func bringUp(ctx context.Context, t tools, o Options, say func(string)) (status, error) {
	node := o.Node
	if node == NodeEmulated {
		node = noNode
	}
	args := append([]string{"up"}, o.at()...)
	if node != NodeAuto {
		args = append(args, "--node", node)
	}
	if _, err := t.run(ctx, say, "localcluster", args...); err != nil {
		return status{}, err
	}
	return readStatus(ctx, t, o)
}

// at tells localcluster which cluster is meant.
func (o Options) at() []string { return []string{"--dir", o.State, "--bin", o.Bin} }

func readStatus(ctx context.Context, t tools, o Options) (status, error) {
	out, err := t.run(ctx, nil, "localcluster", append([]string{"status", "-o", "json"}, o.at()...)...)
	if err != nil {
		return status{}, err
	}
	var s status
	if err := json.Unmarshal(out, &s); err != nil {
		return status{}, fmt.Errorf("read what localcluster says of itself: %w", err)
	}
	return s, nil
}

// RestartKubelet ends the kubelet and has it started again; containers run on.
func (c *Cluster) RestartKubelet(ctx context.Context) error {
	before, err := readStatus(ctx, c.tools, c.options)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(before.Components, func(c component) bool { return c.Name == "kubelet" && c.PID != 0 })
	if at < 0 {
		return errors.New("no kubelet runs")
	}
	pid := before.Components[at].PID
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end the kubelet (process %d): %w", pid, err)
	}
	err = Await(ctx, fmt.Sprintf("the kubelet (process %d) to end", pid), func(context.Context) (string, error) {
		if ended(pid) {
			return "", nil
		}
		return "it runs", nil
	})
	if err != nil {
		return err
	}
	_, err = bringUp(ctx, c.tools, c.options, nil)
	return err
}

// ended is also true of a process that only waits for its parent to notice.
func ended(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// The state follows the name, which is in parentheses and may have some.
	_, fields, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
	return bytes.HasPrefix(fields, []byte("Z")) || bytes.HasPrefix(fields, []byte("X"))
}
