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
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"

	"github.com/memslice/memslice/e2e/localcluster/internal/host"
	"github.com/memslice/memslice/e2e/localcluster/internal/ports"
	"github.com/memslice/memslice/e2e/localcluster/internal/render"
	"github.com/memslice/memslice/e2e/localcluster/internal/state"
)

// Options of Up. Those that are nil were not given: they get their default when
// the cluster is new, and agree with any cluster that exists.
type Options struct {
	NodeName          *string
	FeatureGates      *string
	RuntimeConfig     *string
	KubernetesVersion *string
	Node              *host.Mode
	Timeout           time.Duration // for each component
}

// DefaultNodeName resolves to the loopback address on every machine, which is
// where the kubelet listens.
const DefaultNodeName = "localhost"

// agree refuses options that differ from those that the cluster has.
func agree(s *state.State, o Options) error {
	for _, setting := range []struct {
		flag  string
		given *string
		has   string
	}{
		{"node-name", o.NodeName, s.NodeName},
		{"feature-gates", o.FeatureGates, s.FeatureGates},
		{"runtime-config", o.RuntimeConfig, s.RuntimeConfig},
		{"kubernetes-version", o.KubernetesVersion, s.KubernetesVersion},
	} {
		if setting.given != nil && *setting.given != setting.has {
			return fmt.Errorf("--%s=%s: the cluster exists with %q: take it down first", setting.flag, *setting.given, setting.has)
		}
	}
	if o.Node != nil && *o.Node != host.Auto && string(*o.Node) != string(s.Node) {
		return fmt.Errorf("--node=%s: the cluster exists with %q: take it down first", *o.Node, s.Node)
	}
	return nil
}

// plan makes the choices for a new cluster.
func (c *Cluster) plan(ctx context.Context, o Options) (*state.State, error) {
	version, err := c.kubernetesVersion(ctx)
	if err != nil {
		return nil, err
	}
	if o.KubernetesVersion != nil && *o.KubernetesVersion != version {
		return nil, fmt.Errorf("--kubernetes-version=%s: %s is version %s: build the one that you want", *o.KubernetesVersion, c.program("kube"), version)
	}
	c.say("bringing up Kubernetes %s in %s", version, c.layout.Dir)
	s := &state.State{KubernetesVersion: version, Short: c.layout.Short, Node: state.None}
	if err := c.decideNode(ctx, s, value(o.Node, host.Auto)); err != nil {
		return nil, err
	}
	s.NodeName = value(o.NodeName, DefaultNodeName)
	s.FeatureGates = value(o.FeatureGates, "")
	s.RuntimeConfig = value(o.RuntimeConfig, "")
	s.Tokens = render.Tokens{Admin: token(), ControllerManager: token(), Scheduler: token(), Kubelet: token()}

	id, err := hex.DecodeString(c.layout.ID)
	if err != nil {
		return nil, fmt.Errorf("decode the cluster's id: %w", err)
	}
	chosen, err := ports.Choose(render.Count, binary.BigEndian.Uint32(id), ports.Free)
	if err != nil {
		return nil, err
	}
	s.Ports = render.PortsFrom(chosen)
	s.Subnet, err = freeSubnet(id[0], hasAddress)
	return s, err
}

func value[T any](given *T, otherwise T) T {
	if given == nil {
		return otherwise
	}
	return *given
}

func token() string { return strings.ToLower(rand.Text()) }

// freeSubnet returns the first number from seed on whose gateway's address is not
// taken.
func freeSubnet(seed byte, isTaken func(address string) (bool, error)) (byte, error) {
	for i := range 256 {
		subnet := seed + byte(i)
		taken, err := isTaken(render.Settings{Subnet: subnet}.Gateway())
		if err != nil || !taken {
			return subnet, err
		}
	}
	return 0, errors.New("every network between 198.18.0.0/24 and 198.18.255.0/24 is in use on this machine")
}

func hasAddress(address string) (bool, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("list this machine's addresses: %w", err)
	}
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.String() == address {
			return true, nil
		}
	}
	return false, nil
}

// kubernetesVersion asks the binary, without a leading v.
func (c *Cluster) kubernetesVersion(ctx context.Context) (string, error) {
	kube := c.program("kube")
	out, err := exec.CommandContext(ctx, kube, apiServer, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w: build the local cluster's programs first", kube, err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes v"), nil
}
