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
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/memslice/memslice/e2e/localcluster/internal/cgroup"
	"github.com/memslice/memslice/e2e/localcluster/internal/mounts"
	"github.com/memslice/memslice/e2e/localcluster/internal/proc"
	"github.com/memslice/memslice/e2e/localcluster/internal/render"
	"github.com/memslice/memslice/e2e/localcluster/internal/state"
)

// Names of the components, as in log files and messages.
const (
	etcd              = "etcd"
	containerd        = "containerd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	kubelet           = "kubelet"
)

// component is one program of the cluster.
type component struct {
	name  string
	path  string
	args  []string
	node  bool // runs in the node's mount namespace
	ready func(context.Context) error
}

// components returns those that the state asks for, in the order in which they
// are started.
func (c *Cluster) components(s *state.State, api *client) []component {
	l, kube := c.layout, c.program("kube")
	ofKube := func(name string, args []string, ready func(context.Context) error) component {
		return component{name: name, path: kube, args: append([]string{name}, args...), ready: ready}
	}
	url := func(port int, path string) string { return fmt.Sprintf("https://127.0.0.1:%d%s", port, path) }
	list := []component{
		ofKube(etcd, render.Etcd(l, s.Settings), api.healthy(url(s.Ports.EtcdClient, "/health"))),
		ofKube(apiServer, render.APIServer(l, s.Settings), api.healthy(s.APIServerURL()+"/readyz")),
		ofKube(controllerManager, render.ControllerManager(l, s.Settings), api.healthy(url(s.Ports.ControllerManager, "/healthz"))),
		ofKube(scheduler, render.Scheduler(l, s.Settings), api.healthy(url(s.Ports.Scheduler, "/healthz"))),
	}
	if s.Node != state.Real {
		return list
	}
	runtime := component{name: containerd, path: c.program("containerd"), args: render.Containerd(l), ready: c.containerdReady}
	agent := ofKube(kubelet, render.Kubelet(l, s.Settings), api.healthy(fmt.Sprintf("http://127.0.0.1:%d/healthz", s.Ports.KubeletHealthz)))
	runtime.node, agent.node = true, true
	return append([]component{runtime}, append(list, agent)...)
}

// identity is that of a component's process, which may have ended.
func (c *Cluster) identity(name string) (proc.Identity, error) {
	return proc.Load(c.layout.PID(name))
}

// start starts a component unless it runs.
func (c *Cluster) start(comp component) error {
	id, err := c.identity(comp.name)
	if err != nil {
		return err
	}
	if id.Alive() {
		return nil
	}
	command := proc.Command{
		Path: comp.path,
		Args: comp.args,
		Env:  []string{"PATH=" + c.bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", c.marker()},
		Log:  c.layout.Log(comp.name),
	}
	begin := func() (err error) {
		id, err = proc.StartDetached(command)
		return err
	}
	if comp.node {
		err = c.namespace().Do(begin)
	} else {
		err = begin()
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", comp.name, err)
	}
	if err := id.Save(c.layout.PID(comp.name)); err != nil {
		return err
	}
	if !comp.node {
		return nil
	}
	table, err := mounts.Table()
	if err != nil {
		return err
	}
	return cgroup.Attach(cgroup.Hierarchies(table), c.layout.CgroupRoot(), id.PID)
}

const (
	poll      = 100 * time.Millisecond
	tailLines = 15
)

// await returns when the component is ready. When it ends, or takes longer than
// limit, the error carries the end of its log.
func (c *Cluster) await(ctx context.Context, comp component, limit time.Duration) error {
	id, err := c.identity(comp.name)
	if err != nil {
		return err
	}
	return c.until(ctx, comp.name, limit, func(ctx context.Context) error {
		if !id.Alive() {
			return errEnded
		}
		return comp.ready(ctx)
	})
}

var errEnded = errors.New("its process has ended")

// until repeats a check until it succeeds, or until there is no hope left.
func (c *Cluster) until(ctx context.Context, name string, limit time.Duration, check func(context.Context) error) error {
	deadline := time.Now().Add(limit)
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted while waiting for %s: %w", name, ctx.Err())
		}
		if errors.Is(err, errEnded) || time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready: %w\nend of its log %s:\n%s", name, err, c.layout.Log(name), tail(c.layout.Log(name), tailLines))
		}
		select {
		case <-ctx.Done():
		case <-time.After(poll):
		}
	}
}

// ctr runs containerd's client on the namespace that the kubelet uses.
func (c *Cluster) ctr(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--address", c.layout.ContainerdSocket(), "--namespace", "k8s.io"}, args...)
	cmd := exec.CommandContext(ctx, c.program("ctr"), args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

func (c *Cluster) containerdReady(ctx context.Context) error {
	if _, err := os.Stat(c.layout.ContainerdSocket()); err != nil {
		return err
	}
	_, err := c.ctr(ctx, "version")
	return err
}
