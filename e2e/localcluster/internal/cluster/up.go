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
	"path/filepath"
	"time"

	"github.com/memslice/memslice/e2e/localcluster/internal/host"
	"github.com/memslice/memslice/e2e/localcluster/internal/pki"
	"github.com/memslice/memslice/e2e/localcluster/internal/proc"
	"github.com/memslice/memslice/e2e/localcluster/internal/render"
	"github.com/memslice/memslice/e2e/localcluster/internal/state"
)

// Up brings the cluster up, or completes one that is half up.
func (c *Cluster) Up(ctx context.Context, o Options) error {
	if err := c.mine(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.layout.Dir, 0o755); err != nil {
		return fmt.Errorf("create the cluster's folder: %w", err)
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()

	s, err := c.load()
	if err != nil {
		return err
	}
	if s != nil {
		if err := agree(s, o); err != nil {
			return err
		}
		if c.check(ctx, s) == nil {
			c.say("the cluster in %s is up", c.layout.Dir)
			c.summary(s)
			return nil
		}
		c.say("completing the cluster in %s", c.layout.Dir)
	} else if s, err = c.plan(ctx, o); err != nil {
		_ = os.Remove(c.layout.Dir) // unless there is something in it
		return err
	}
	if err := c.prepare(s); err != nil {
		return err
	}
	if err := c.run(ctx, s, o.Timeout); err != nil {
		return err
	}
	c.summary(s)
	return nil
}

// prepare makes everything that the components need before they start. All of
// it may exist already.
func (c *Cluster) prepare(s *state.State) error {
	boot, err := proc.BootID()
	if err != nil {
		return err
	}
	if s.Boot != boot {
		// What is left from before a reboot names processes that are gone.
		if err := os.RemoveAll(filepath.Join(c.layout.Dir, "run")); err != nil {
			return fmt.Errorf("remove what a reboot made meaningless: %w", err)
		}
		s.Boot = boot
	}
	// Before anything is changed on the machine: down has to know of it.
	if s.Node == state.Real {
		if err := c.remember(s); err != nil {
			return err
		}
	}
	if err := s.Save(c.layout.State()); err != nil {
		return err
	}
	if err := c.certificates(s); err != nil {
		return err
	}
	ca, err := os.ReadFile(c.layout.PKI(render.CAFile))
	if err != nil {
		return fmt.Errorf("read the cluster's CA: %w", err)
	}
	if err := c.prepareNode(s); err != nil {
		return err
	}
	programs := render.Programs{Shim: c.program("containerd-shim-runc-v2"), Runc: host.FindRunc(), CNI: c.program("cni")}
	files, err := render.Files(c.layout, s.Settings, programs, ca)
	if err != nil {
		return err
	}
	for path, data := range files {
		if err := state.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// certificates makes all keys and certificates, unless they are there. The CA's
// is written last, so that a half-made set is made anew.
func (c *Cluster) certificates(s *state.State) error {
	l := c.layout
	if _, err := os.Stat(l.PKI(render.CAFile)); err == nil {
		return nil
	}
	fresh := l.PKI("new-" + render.CAFile)
	ca, err := pki.NewCA("memslice local cluster", fresh, time.Now())
	if err != nil {
		return err
	}
	if err := ca.Server(l.PKI(render.ServerPair), "memslice local cluster", s.ServerHosts()...); err != nil {
		return err
	}
	if err := ca.Client(l.PKI(render.ClientPair), apiServer); err != nil {
		return err
	}
	if err := pki.KeyPair(l.PKI(render.ServiceAccount)); err != nil {
		return err
	}
	if err := os.Rename(fresh, l.PKI(render.CAFile)); err != nil {
		return fmt.Errorf("finish the certificates: %w", err)
	}
	return nil
}

// run starts what does not run and waits until the cluster can be used.
func (c *Cluster) run(ctx context.Context, s *state.State, limit time.Duration) error {
	api, err := newClient(c.layout, s)
	if err != nil {
		return err
	}
	for _, comp := range c.components(s, api) {
		if err := c.start(comp); err != nil {
			return err
		}
		// Each needs those before it, and they are quick to start.
		if err := c.await(ctx, comp, limit); err != nil {
			return err
		}
		c.say("%s is ready", comp.name)
		if comp.name == containerd {
			if err := c.loadSandboxImage(ctx); err != nil {
				return err
			}
		}
	}
	if err := c.until(ctx, controllerManager, limit, api.podsAllowed); err != nil {
		return err
	}
	if err := api.letNodesReadClaims(ctx); err != nil {
		return err
	}
	if s.Node != state.Real {
		return nil
	}
	ready := func(ctx context.Context) error { return api.nodeReady(ctx, s.NodeName) }
	if err := c.until(ctx, kubelet, limit, ready); err != nil {
		return err
	}
	c.say("node %s is ready", s.NodeName)
	return nil
}

// check says what keeps the cluster from being up.
func (c *Cluster) check(ctx context.Context, s *state.State) error {
	api, err := newClient(c.layout, s)
	if err != nil {
		return err
	}
	for _, comp := range c.components(s, api) {
		id, err := c.identity(comp.name)
		if err != nil {
			return err
		}
		if !id.Alive() {
			return fmt.Errorf("%s does not run", comp.name)
		}
		if err := comp.ready(ctx); err != nil {
			return fmt.Errorf("%s is not ready: %w", comp.name, err)
		}
	}
	if s.Node == state.Real {
		if err := api.nodeReady(ctx, s.NodeName); err != nil {
			return fmt.Errorf("node %s is not ready: %w", s.NodeName, err)
		}
	}
	return api.podsAllowed(ctx)
}

func (c *Cluster) summary(s *state.State) {
	if s.Node == state.None {
		c.say("no node, only the control plane: %s", s.NodeReason)
	}
	fmt.Fprintf(c.out, "\nexport KUBECONFIG=%s\n", c.layout.Kubeconfig())
}
