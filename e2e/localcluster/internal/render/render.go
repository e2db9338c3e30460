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

// Package render turns the settings of a local cluster into the arguments and
// configuration files of its components. It is pure: what it returns depends on
// its arguments alone, and it neither reads nor writes files.
package render

import (
	"fmt"
	"strconv"

	"github.com/memslice/memslice/e2e/localcluster/internal/layout"
)

// Settings are the choices behind one cluster. They are made once, when it is
// first brought up, and hold until it is taken down.
type Settings struct {
	NodeName      string `json:"nodeName"`
	FeatureGates  string `json:"featureGates,omitempty"`  // as in --feature-gates, for every component
	RuntimeConfig string `json:"runtimeConfig,omitempty"` // as in the API server's --runtime-config
	Ports         Ports  `json:"ports"`
	Tokens        Tokens `json:"tokens"`
	// Subnet is the third number of the pods' and services' networks, which lie
	// in a range reserved for benchmarks (RFC 2544) that no machine's real
	// network uses.
	Subnet byte `json:"subnet"`
	// Snapshotter is containerd's: overlayfs, or native where the file system
	// cannot carry an overlay.
	Snapshotter string `json:"snapshotter,omitempty"`
}

// Ports on 127.0.0.1, one per listener.
type Ports struct {
	APIServer         int `json:"apiServer"`
	EtcdClient        int `json:"etcdClient"`
	EtcdPeer          int `json:"etcdPeer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
	Kubelet           int `json:"kubelet"`
	KubeletHealthz    int `json:"kubeletHealthz"`
}

// Count is the number of ports that PortsFrom needs.
const Count = 7

// PortsFrom names Count ports.
func PortsFrom(p []int) Ports {
	return Ports{APIServer: p[0], EtcdClient: p[1], EtcdPeer: p[2], ControllerManager: p[3],
		Scheduler: p[4], Kubelet: p[5], KubeletHealthz: p[6]}
}

// Tokens authenticate each user to the API server.
type Tokens struct {
	Admin             string `json:"admin"`
	ControllerManager string `json:"controllerManager"`
	Scheduler         string `json:"scheduler"`
	Kubelet           string `json:"kubelet"`
}

// Programs are the binaries that the node's runtime starts.
type Programs struct {
	Shim string // containerd-shim-runc-v2
	Runc string
	CNI  string // folder of ptp, host-local and loopback
}

// SandboxImage holds a pod's namespaces open.
const SandboxImage = "docker.io/memslice/pause:dev"

// ServiceCIDR is the range of service addresses. Nothing routes them: there is
// no kube-proxy.
func (s Settings) ServiceCIDR() string { return fmt.Sprintf("198.19.%d.0/24", s.Subnet) }

// ServiceAddress is that of the service "kubernetes".
func (s Settings) ServiceAddress() string { return fmt.Sprintf("198.19.%d.1", s.Subnet) }

// PodCIDR is the range of pod addresses.
func (s Settings) PodCIDR() string { return fmt.Sprintf("198.18.%d.0/24", s.Subnet) }

// Gateway is the host's end of every pod's link.
func (s Settings) Gateway() string { return fmt.Sprintf("198.18.%d.1", s.Subnet) }

// APIServerURL is where the API server answers.
func (s Settings) APIServerURL() string { return loopback(s.Ports.APIServer) }

// Names of the files that Files and the components' arguments agree on.
const (
	tokensFile      = "tokens.csv"
	containerdFile  = "containerd.toml"
	kubeletFile     = "kubelet.yaml"
	kubeletTokens   = "kubelet.kubeconfig"
	managerTokens   = "kube-controller-manager.kubeconfig"
	schedulerTokens = "kube-scheduler.kubeconfig"
)

// Names of the keys and certificates, made by the caller.
const (
	CAFile         = "ca.crt"
	ServerPair     = "server" // every server of the cluster
	ClientPair     = "apiserver-client"
	ServiceAccount = "service-account"
)

// ServerHosts are the names that the servers are reached by.
func (s Settings) ServerHosts() []string {
	return []string{
		"127.0.0.1", s.ServiceAddress(), "localhost", s.NodeName,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
}

// Files returns the contents of the configuration files by path. ca is the CA's
// certificate in PEM.
func Files(l layout.Layout, s Settings, p Programs, ca []byte) (map[string][]byte, error) {
	files := map[string][]byte{l.Conf(tokensFile): tokens(s)}
	type rendered struct {
		path   string
		render func() ([]byte, error)
	}
	config := func(user, token string) func() ([]byte, error) {
		return func() ([]byte, error) { return kubeconfig(s, ca, user, token) }
	}
	for _, f := range []rendered{
		{l.Kubeconfig(), config("admin", s.Tokens.Admin)},
		{l.Conf(managerTokens), config("system:kube-controller-manager", s.Tokens.ControllerManager)},
		{l.Conf(schedulerTokens), config("system:kube-scheduler", s.Tokens.Scheduler)},
		{l.Conf(kubeletTokens), config("system:node:"+s.NodeName, s.Tokens.Kubelet)},
		{l.Conf(kubeletFile), func() ([]byte, error) { return kubeletConfig(l, s) }},
		{l.Conf(containerdFile), func() ([]byte, error) { return containerdConfig(l, s, p) }},
		{l.Conf("cni/10-memslice.conflist"), func() ([]byte, error) { return cniConfig(l, s) }},
	} {
		data, err := f.render()
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", f.path, err)
		}
		files[f.path] = data
	}
	return files, nil
}

func loopback(port int) string { return "https://127.0.0.1:" + strconv.Itoa(port) }
