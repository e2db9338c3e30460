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

package render

import (
	"bytes"
	"fmt"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/memslice/memslice/e2e/localcluster/internal/layout"
)

// Etcd returns the arguments of etcd. Clients need a certificate.
func Etcd(l layout.Layout, s Settings) []string {
	client, peer := loopback(s.Ports.EtcdClient), "http://127.0.0.1:"+strconv.Itoa(s.Ports.EtcdPeer)
	return []string{
		"--name=local",
		"--data-dir=" + l.EtcdData(),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=local=" + peer,
		"--cert-file=" + l.PKI(ServerPair+".crt"),
		"--key-file=" + l.PKI(ServerPair+".key"),
		"--client-cert-auth",
		"--trusted-ca-file=" + l.PKI(CAFile),
		// The cluster is thrown away as a whole, so nothing is gained by waiting
		// for the disk at every write.
		"--unsafe-no-fsync",
		"--auto-compaction-mode=periodic",
		"--auto-compaction-retention=5m",
		"--log-level=warn",
	}
}

// APIServer returns the arguments of kube-apiserver.
func APIServer(l layout.Layout, s Settings) []string {
	args := []string{
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(s.Ports.APIServer),
		// The service "kubernetes" cannot have a loopback address as endpoint.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + s.ServiceCIDR(),
		"--cert-dir=" + l.PKI(""),
		"--tls-cert-file=" + l.PKI(ServerPair+".crt"),
		"--tls-private-key-file=" + l.PKI(ServerPair+".key"),
		"--etcd-servers=" + loopback(s.Ports.EtcdClient),
		"--etcd-cafile=" + l.PKI(CAFile),
		"--etcd-certfile=" + l.PKI(ClientPair+".crt"),
		"--etcd-keyfile=" + l.PKI(ClientPair+".key"),
		"--kubelet-certificate-authority=" + l.PKI(CAFile),
		"--kubelet-client-certificate=" + l.PKI(ClientPair+".crt"),
		"--kubelet-client-key=" + l.PKI(ClientPair+".key"),
		// The node's name resolves to where the kubelet listens; its addresses
		// do not lead there.
		"--kubelet-preferred-address-types=Hostname",
		"--token-auth-file=" + l.Conf(tokensFile),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + l.PKI(ServiceAccount+".pub"),
		"--service-account-signing-key-file=" + l.PKI(ServiceAccount+".key"),
		"--profiling=false",
	}
	if s.RuntimeConfig != "" {
		args = append(args, "--runtime-config="+s.RuntimeConfig)
	}
	return withGates(args, s)
}

// ControllerManager returns the arguments of kube-controller-manager.
func ControllerManager(l layout.Layout, s Settings) []string {
	return withGates([]string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(s.Ports.ControllerManager),
		"--tls-cert-file=" + l.PKI(ServerPair+".crt"),
		"--tls-private-key-file=" + l.PKI(ServerPair+".key"),
		"--kubeconfig=" + l.Conf(managerTokens),
		"--authentication-kubeconfig=" + l.Conf(managerTokens),
		"--authorization-kubeconfig=" + l.Conf(managerTokens),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + l.PKI(ServiceAccount+".key"),
		"--root-ca-file=" + l.PKI(CAFile),
		"--flex-volume-plugin-dir=" + l.Conf("volume-plugins"),
		// Its own limit of 20 requests a second makes its start take 5 seconds.
		"--kube-api-qps=200",
		"--kube-api-burst=400",
		"--leader-elect=false",
		"--profiling=false",
	}, s)
}

// Scheduler returns the arguments of kube-scheduler.
func Scheduler(l layout.Layout, s Settings) []string {
	return withGates([]string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(s.Ports.Scheduler),
		"--tls-cert-file=" + l.PKI(ServerPair+".crt"),
		"--tls-private-key-file=" + l.PKI(ServerPair+".key"),
		"--kubeconfig=" + l.Conf(schedulerTokens),
		"--authentication-kubeconfig=" + l.Conf(schedulerTokens),
		"--authorization-kubeconfig=" + l.Conf(schedulerTokens),
		// With its own limit of 50 requests a second, a burst of pods with claims
		// is placed at 13 a second, whatever the devices are like.
		"--kube-api-qps=5000",
		"--kube-api-burst=5000",
		"--leader-elect=false",
		"--profiling=false",
	}, s)
}

func withGates(args []string, s Settings) []string {
	if s.FeatureGates == "" {
		return args
	}
	return append(args, "--feature-gates="+s.FeatureGates)
}

// tokens lists token, user, uid and groups, as --token-auth-file wants them.
func tokens(s Settings) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s,admin,admin,system:masters\n", s.Tokens.Admin)
	fmt.Fprintf(&b, "%s,system:kube-controller-manager,kube-controller-manager\n", s.Tokens.ControllerManager)
	fmt.Fprintf(&b, "%s,system:kube-scheduler,kube-scheduler\n", s.Tokens.Scheduler)
	fmt.Fprintf(&b, "%s,system:node:%s,kubelet,system:nodes\n", s.Tokens.Kubelet, s.NodeName)
	return b.Bytes()
}

func kubeconfig(s Settings, ca []byte, user, token string) ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters": []any{map[string]any{
			"name":    "memslice",
			"cluster": map[string]any{"server": s.APIServerURL(), "certificate-authority-data": ca},
		}},
		"users":           []any{map[string]any{"name": user, "user": map[string]any{"token": token}}},
		"contexts":        []any{map[string]any{"name": "memslice", "context": map[string]any{"cluster": "memslice", "user": user}}},
		"current-context": "memslice",
	})
}
