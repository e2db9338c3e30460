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
	"path/filepath"
	"slices"
	"strings"

	"github.com/memslice/memslice/e2e/localcluster/internal/cgroup"
	"github.com/memslice/memslice/e2e/localcluster/internal/host"
	"github.com/memslice/memslice/e2e/localcluster/internal/image"
	"github.com/memslice/memslice/e2e/localcluster/internal/mounts"
	"github.com/memslice/memslice/e2e/localcluster/internal/render"
	"github.com/memslice/memslice/e2e/localcluster/internal/state"
)

// decideNode fills in what depends on whether this machine can run pods.
func (c *Cluster) decideNode(ctx context.Context, s *state.State, mode host.Mode) error {
	facts, err := host.Look(c.layout.Dir, c.layout.CgroupRoot())
	if err != nil {
		return err
	}
	decision, err := host.Decide(mode, facts)
	if err != nil {
		return err
	}
	s.Snapshotter, s.NodeReason = decision.Snapshotter, decision.Reason
	if !decision.Real {
		c.say("no node, only the control plane: %s", decision.Reason)
		return nil
	}
	s.Node = state.Real
	if decision.InstallRunc {
		return c.installRunc(ctx)
	}
	return nil
}

func (c *Cluster) installRunc(ctx context.Context) error {
	c.say("runc is needed and not installed: running apt-get install runc")
	install := []string{"install", "--yes", "--no-install-recommends", "runc"}
	err := aptGet(ctx, install...)
	if err != nil { // perhaps only because the package lists are old or absent
		err = errors.Join(aptGet(ctx, "update"), aptGet(ctx, install...))
	}
	if host.FindRunc() == "" {
		return fmt.Errorf("install runc with apt-get: %w: install it yourself, or use --node=none", err)
	}
	return nil
}

func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLine(string(out)))
	}
	return nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// shadows are the folders that the kubelet and containerd have built in.
func (c *Cluster) shadows() []mounts.Shadow {
	var shadows []mounts.Shadow
	for _, path := range []string{
		"/var/lib/kubelet",    // device-plugins/
		"/var/log/containers", // links to the pods' logs
		"/var/lib/cni",        // results of the network plugins
	} {
		shadows = append(shadows, mounts.Shadow{Path: path, Source: c.layout.Shadow(filepath.Base(path))})
	}
	return shadows
}

// prepareNode gives the cluster its short name and the node its surroundings.
func (c *Cluster) prepareNode(s *state.State) error {
	l := c.layout
	if s.Node != state.Real {
		return mounts.Link(l.Dir, l.Short)
	}
	if err := mounts.Bind(l.Dir, l.Short); err != nil {
		return err
	}
	for _, dir := range []string{l.KubeletRoot(), l.PodLogs(), l.CDI(), l.ContainerdRoot(), l.Run()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create the node's folders: %w", err)
		}
	}
	table, err := mounts.Table()
	if err != nil {
		return err
	}
	if err := cgroup.Create(cgroup.Hierarchies(table), l.CgroupRoot()); err != nil {
		return err
	}
	if c.namespace().Exists() {
		return nil
	}
	for _, shadow := range c.shadows() {
		for _, dir := range []string{shadow.Path, shadow.Source} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("create the node's folders: %w", err)
			}
		}
	}
	return c.namespace().Create(c.shadows())
}

// loadSandboxImage puts the image that every pod starts with on the node.
func (c *Cluster) loadSandboxImage(ctx context.Context) error {
	images, err := c.ctr(ctx, "images", "ls", "--quiet")
	if err != nil || slices.Contains(strings.Fields(images), render.SandboxImage) {
		return err
	}
	file := filepath.Join(c.layout.Run(), "pause.tar")
	defer os.Remove(file)
	spec := image.Spec{
		Tag:        render.SandboxImage,
		Entrypoint: []string{"/pause"},
		User:       "65535:65535",
		Files:      []image.File{{Source: c.program("pause"), Path: "/pause", Mode: 0o755}},
	}
	if err := spec.Write(file); err != nil {
		return fmt.Errorf("make the sandbox image: %w", err)
	}
	return c.importImage(ctx, file)
}

func (c *Cluster) importImage(ctx context.Context, file string) error {
	_, err := c.ctr(ctx, "images", "import", file)
	return err
}

// LoadImage imports an image from a Docker or OCI archive; pods refer to it by
// its full name with imagePullPolicy Never.
func (c *Cluster) LoadImage(ctx context.Context, file string) error {
	s, err := c.existing()
	if err != nil {
		return err
	}
	if s.Node != state.Real {
		return fmt.Errorf("load image %s: the cluster has no node (%s)", file, s.NodeReason)
	}
	if err := c.importImage(ctx, file); err != nil {
		return fmt.Errorf("load image %s: %w", file, err)
	}
	c.say("loaded %s", file)
	return nil
}

// existing returns the state of a cluster that must exist.
func (c *Cluster) existing() (*state.State, error) {
	if err := c.mine(); err != nil {
		return nil, err
	}
	s, err := c.load()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("there is no cluster in %s: bring it up first", c.layout.Dir)
	}
	return s, nil
}
