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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/memslice/memslice/e2e/harness"
)

// controlPlane is a local cluster without a node, for one run.
type controlPlane struct {
	root, bin, state string
	env              []string // in addition to this process's
	scheduler        int      // its process, once it is up
}

func newControlPlane(o harness.Options) *controlPlane {
	remembered := filepath.Join(o.State, "conf", "tools")
	return &controlPlane{root: o.Root, bin: o.Bin, state: o.State, env: []string{
		"KUBECACHEDIR=" + remembered, "HELM_CACHE_HOME=" + remembered, "HELM_CONFIG_HOME=" + remembered, "HELM_DATA_HOME=" + remembered,
	}}
}

// up replaces what an earlier run may have left. It returns a client and the
// version of Kubernetes.
func (p *controlPlane) up(ctx context.Context) (kubernetes.Interface, string, error) {
	if err := p.down(ctx); err != nil {
		return nil, "", err
	}
	if _, err := p.run(ctx, nil, "localcluster", "up", "--dir", p.state, "--bin", p.bin, "--node", "none"); err != nil {
		return nil, "", err
	}
	out, err := p.run(ctx, nil, "localcluster", "status", "--dir", p.state, "--bin", p.bin, "-o", "json")
	if err != nil {
		return nil, "", err
	}
	var status struct {
		Kubeconfig        string `json:"kubeconfig"`
		KubernetesVersion string `json:"kubernetesVersion"`
		Components        []struct {
			Name string `json:"name"`
			PID  int    `json:"pid"`
		} `json:"components"`
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return nil, "", fmt.Errorf("read what localcluster says of itself: %w", err)
	}
	for _, component := range status.Components {
		if component.Name == "kube-scheduler" {
			p.scheduler = component.PID
		}
	}
	if err := p.applyClasses(ctx, status.Kubeconfig); err != nil {
		return nil, "", err
	}
	config, err := clientcmd.BuildConfigFromFlags("", status.Kubeconfig)
	if err != nil {
		return nil, "", fmt.Errorf("read the cluster's kubeconfig %s: %w", status.Kubeconfig, err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, "", fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return client, status.KubernetesVersion, nil
}

// applyClasses takes the device classes from the chart: what they select by is
// part of what a claim costs.
func (p *controlPlane) applyClasses(ctx context.Context, kubeconfig string) error {
	classes, err := p.run(ctx, nil, "helm", "template", "memslice", filepath.Join(p.root, "deployments", "helm", "memslice"),
		"--show-only", "templates/deviceclasses.yaml")
	if err != nil {
		return err
	}
	_, err = p.run(ctx, classes, "kubectl", "--kubeconfig", kubeconfig, "apply", "-f", "-")
	return err
}

// schedulerTime is the CPU time that the scheduler has used so far.
func (p *controlPlane) schedulerTime() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.scheduler))
	if err != nil {
		return 0, fmt.Errorf("look at the scheduler: %w", err)
	}
	return cpuTime(stat)
}

// tick is the unit of times in proc(5), 1/USER_HZ, which is the same everywhere.
const tick = 10 * time.Millisecond

// cpuTime adds utime and stime of a /proc/<pid>/stat.
func cpuTime(stat []byte) (time.Duration, error) {
	// The program's name, in parentheses, may have spaces; utime and stime are 11
	// and 12 fields after the state that follows it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("read the CPU time of a process: %q is not what proc(5) says", stat)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the CPU time of a process: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

func (p *controlPlane) down(ctx context.Context) error {
	_, err := p.run(ctx, nil, "localcluster", "down", "--dir", p.state, "--bin", p.bin)
	return err
}

func (p *controlPlane) run(ctx context.Context, input []byte, name string, args ...string) ([]byte, error) {
	path := filepath.Join(p.bin, name)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("find %s: %w: build it by \"make localcluster\"", name, err)
	}
	command := exec.CommandContext(ctx, path, args...)
	command.Env = append(os.Environ(), p.env...)
	command.Stdin = bytes.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w:\n%s", name, args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}
