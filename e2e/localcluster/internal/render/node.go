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
	"encoding/json"

	"github.com/pelletier/go-toml/v2"
	"sigs.k8s.io/yaml"

	"github.com/memslice/memslice/e2e/localcluster/internal/layout"
)

// Kubelet returns the arguments of the kubelet.
func Kubelet(l layout.Layout, s Settings) []string {
	return withGates([]string{
		"--config=" + l.Conf(kubeletFile),
		"--kubeconfig=" + l.Conf(kubeletTokens),
		"--root-dir=" + l.KubeletRoot(),
		"--cert-dir=" + l.KubeletRoot() + "/pki",
		"--hostname-override=" + s.NodeName,
	}, s)
}

// Containerd returns the arguments of containerd.
func Containerd(l layout.Layout) []string {
	return []string{"--config=" + l.Conf(containerdFile), "--log-level=info"}
}

type object = map[string]any

func kubeletConfig(l layout.Layout, s Settings) ([]byte, error) {
	socket := "unix://" + l.ContainerdSocket()
	return yaml.Marshal(object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",

		"address":            "127.0.0.1",
		"port":               s.Ports.Kubelet,
		"healthzBindAddress": "127.0.0.1",
		"healthzPort":        s.Ports.KubeletHealthz,
		"tlsCertFile":        l.PKI(ServerPair + ".crt"),
		"tlsPrivateKeyFile":  l.PKI(ServerPair + ".key"),
		// Only the API server has a certificate of the cluster's CA, so whoever
		// has one may do everything.
		"authentication": object{
			"anonymous": object{"enabled": false},
			"webhook":   object{"enabled": false},
			"x509":      object{"clientCAFile": l.PKI(CAFile)},
		},
		"authorization": object{"mode": "AlwaysAllow"},

		"containerRuntimeEndpoint": socket,
		"imageServiceEndpoint":     socket,
		"podLogsDir":               l.PodLogs(),
		"volumePluginDir":          l.KubeletRoot() + "/volume-plugins",
		"resolvConf":               "",
		"clusterDomain":            "cluster.local",

		"cgroupDriver":           "cgroupfs",
		"cgroupRoot":             "/" + l.CgroupRoot(),
		"failCgroupV1":           false, // hybrid machines are common in CI
		"enforceNodeAllocatable": []string{"pods"},
		"failSwapOn":             false,
		// A developer's machine matters more than this cluster.
		"oomScoreAdj": 0,
		// There is no kube-proxy, and the machine's packet filter is not ours.
		"makeIPTablesUtilChains": false,

		// The machine's disk may be nearly full and is nobody's business here;
		// images cannot be pulled again once they were removed. Without any
		// threshold the eviction manager rests.
		"localStorageCapacityIsolation": false,
		"imageGCHighThresholdPercent":   100,
		"imageGCLowThresholdPercent":    99,
		"evictionHard": object{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},

		// The first report that a node is ready often fails, and this is how long
		// the next one takes.
		"nodeStatusUpdateFrequency": "1s",
		"nodeStatusReportFrequency": "5m",
		"shutdownGracePeriod":       "0s",
		"logging":                   object{"verbosity": 2},
	})
}

// containerdConfig keeps everything that containerd would put at well-known
// places below the cluster's folder.
func containerdConfig(l layout.Layout, s Settings, p Programs) ([]byte, error) {
	off := object{"address": ""}
	return toml.Marshal(object{
		"version": 4,
		"root":    l.ContainerdRoot(),
		"state":   l.Run() + "/containerd",
		"disabled_plugins": []string{
			"io.containerd.internal.v1.opt",
			"io.containerd.nri.v1.nri",
			"io.containerd.internal.v1.tracing",
			"io.containerd.image-verifier.v1.bindir",
			"io.containerd.snapshotter.v1.devmapper",
			"io.containerd.snapshotter.v1.blockfile",
			"io.containerd.snapshotter.v1.erofs",
			"io.containerd.snapshotter.v1.btrfs",
			"io.containerd.snapshotter.v1.zfs",
		},
		"plugins": object{
			"io.containerd.server.v1.grpc":  object{"address": l.ContainerdSocket()},
			"io.containerd.server.v1.ttrpc": object{"address": l.ContainerdSocket() + ".ttrpc"},
			"io.containerd.server.v1.debug": off,
			"io.containerd.shim.v1.manager": object{"socket_dir": l.Run() + "/s"},
			"io.containerd.cri.v1.images": object{
				"snapshotter":   s.Snapshotter,
				"pinned_images": object{"sandbox": SandboxImage},
			},
			"io.containerd.cri.v1.runtime": object{
				"cdi_spec_dirs":                []string{l.CDI()},
				"netns_mounts_under_state_dir": true,
				// Nested machines lack CAP_SYS_RESOURCE, and AppArmor's tools.
				"restrict_oom_score_adj": true,
				"disable_apparmor":       true,
				"cni":                    object{"bin_dirs": []string{p.CNI}, "conf_dir": l.CNIConf()},
				"containerd": object{
					"default_runtime_name": "runc",
					"runtimes": object{"runc": object{
						"runtime_type": "io.containerd.runc.v2",
						"runtime_path": p.Shim,
						"options":      object{"BinaryName": p.Runc, "Root": l.Run() + "/runc", "SystemdCgroup": false},
					}},
				},
			},
			"io.containerd.grpc.v1.cri": object{"stream_server_address": "127.0.0.1", "stream_server_port": "0"},
		},
	})
}

// cniConfig links every pod to the host by a pair of virtual interfaces of its
// own: no bridge, no packet filter, nothing that outlives the pod.
func cniConfig(l layout.Layout, s Settings) ([]byte, error) {
	return json.MarshalIndent(object{
		"cniVersion": "1.0.0",
		"name":       "memslice",
		"plugins": []any{
			object{"type": "ptp", "ipMasq": false, "ipam": object{
				"type":    "host-local",
				"dataDir": l.Run() + "/cni",
				"ranges":  []any{[]any{object{"subnet": s.PodCIDR(), "gateway": s.Gateway()}}},
				"routes":  []any{object{"dst": "0.0.0.0/0"}},
			}},
		},
	}, "", "  ")
}
