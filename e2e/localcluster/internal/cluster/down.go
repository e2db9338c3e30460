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
	"path/filepath"
	"time"

	"github.com/memslice/memslice/e2e/localcluster/internal/cgroup"
	"github.com/memslice/memslice/e2e/localcluster/internal/layout"
	"github.com/memslice/memslice/e2e/localcluster/internal/mounts"
	"github.com/memslice/memslice/e2e/localcluster/internal/proc"
	"github.com/memslice/memslice/e2e/localcluster/internal/render"
	"github.com/memslice/memslice/e2e/localcluster/internal/state"
)

// Down ends every process of the cluster and removes all that it left on the
// machine. It relies on nothing that up may not have come to write: what belongs
// to the cluster is found by its folder's name alone.
func (c *Cluster) Down(ctx context.Context) error {
	if err := c.mine(); err != nil {
		return err
	}
	if _, err := os.Stat(c.layout.Dir); err == nil {
		unlock, err := c.lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
	}
	s, err := c.load()
	if err != nil {
		c.say("%v", err)
	}
	if s == nil {
		s = c.guess()
	}
	if err := c.end(ctx); err != nil {
		return err
	}
	if err := c.clean(s); err != nil {
		return err
	}
	c.say("no cluster in %s", c.layout.Dir)
	return nil
}

// guess stands in for a state that was lost. A node leaves a mount at its short
// name; the folders that it needs are then taken to be its own, if they are
// empty.
func (c *Cluster) guess() *state.State {
	s := &state.State{}
	if info, err := os.Lstat(c.layout.Short); err == nil && info.IsDir() {
		s.Node = state.Real
		for _, shadow := range c.shadows() {
			s.MadeDirs = append(s.MadeDirs, shadow.Path)
		}
	}
	return s
}

// end ends all processes: the kubelet first, because it restarts containers;
// then the containers and their runtime; then the control plane.
func (c *Cluster) end(ctx context.Context) error {
	if err := c.stop(ctx, kubelet); err != nil {
		return err
	}
	node := proc.InCgroup(c.layout.CgroupRoot())
	if ns, err := c.namespace().Info(); err == nil {
		node = proc.Any(node, proc.InMountNamespace(ns))
	}
	if err := proc.KillAll(ctx, node); err != nil {
		return err
	}
	for _, name := range []string{scheduler, controllerManager, apiServer, etcd} {
		if err := c.stop(ctx, name); err != nil {
			return err
		}
	}
	return proc.KillAll(ctx, proc.WithEnv(c.marker()))
}

func (c *Cluster) stop(ctx context.Context, name string) error {
	id, err := c.identity(name)
	if err != nil || !id.Alive() {
		return err
	}
	// Nothing that they would write is kept, so they need not take their time.
	if err := proc.Stop(ctx, id, 2*time.Second); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	c.say("%s has ended", name)
	return nil
}

// clean removes mounts, links, cgroups and files.
func (c *Cluster) clean(s *state.State) error {
	// The pinned mount namespace goes with this, and with it every mount of the
	// node and the pods' network namespaces.
	if err := mounts.Unshort(c.layout.Short); err != nil {
		return err
	}
	if err := mounts.UnmountAll(c.layout.Dir); err != nil {
		return err
	}
	table, err := mounts.Table()
	if err != nil {
		return err
	}
	if err := cgroup.Remove(cgroup.Hierarchies(table), c.layout.CgroupRoot()); err != nil {
		return err
	}
	if s.Node == state.Real {
		if err := awaitNoLink(s.Settings); err != nil {
			return err
		}
		if err := c.restore(s); err != nil {
			return err
		}
	}
	return c.removeFiles()
}

// awaitNoLink waits until the kernel has removed the pods' links: it does so
// some time after their network namespaces have gone.
func awaitNoLink(s render.Settings) error {
	for range 100 {
		there, err := hasAddress(s.Gateway())
		if err != nil || !there {
			return err
		}
		time.Sleep(poll)
	}
	return fmt.Errorf("a network link with the address %s is still there although the pods are gone", s.Gateway())
}

// removeFiles removes the cluster's folder; if somebody put other things there,
// all but those.
func (c *Cluster) removeFiles() error {
	for _, name := range layout.Entries() {
		if err := os.RemoveAll(filepath.Join(c.layout.Dir, name)); err != nil {
			return fmt.Errorf("remove the cluster's files: %w", err)
		}
	}
	if err := os.Remove(c.layout.Dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		entries, _ := os.ReadDir(c.layout.Dir)
		if len(entries) == 0 {
			return fmt.Errorf("remove the cluster's folder: %w", err)
		}
		c.say("left in %s what is not the cluster's: %s and perhaps more", c.layout.Dir, entries[0].Name())
	}
	return nil
}
