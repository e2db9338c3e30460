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

// Package layout names every path of a local cluster, from the folder that the
// user chose. It is pure: it creates nothing and looks at nothing.
package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// Layout is where the parts of one cluster are. Paths below Dir are written by
// the cluster and disappear with it.
type Layout struct {
	// Dir is the cluster's folder: absolute, without symlinks.
	Dir string
	// Short is another name of Dir, short enough for unix sockets: their paths
	// are limited to 107 bytes, of which a plugin's registration socket takes 80
	// below the kubelet's folder.
	Short string
	// ID tells clusters of one machine apart: 8 hexadecimal digits of Dir's hash.
	ID string
}

// New returns the layout of the cluster in dir, an absolute path without
// symlinks. The short name is made in shortParent.
func New(dir, shortParent string) Layout {
	sum := sha256.Sum256([]byte(dir))
	id := hex.EncodeToString(sum[:4])
	return Layout{Dir: dir, Short: filepath.Join(shortParent, "memslice-"+id), ID: id}
}

// Files of the cluster, by their long name, which outlives the short one.

// State is the file that remembers what was chosen for this cluster.
func (l Layout) State() string { return filepath.Join(l.Dir, "state.json") }

// Kubeconfig holds the administrator's credentials.
func (l Layout) Kubeconfig() string { return filepath.Join(l.Dir, "kubeconfig") }

// LogDir has one file per component.
func (l Layout) LogDir() string { return filepath.Join(l.Dir, "log") }

// Log is the log of one component.
func (l Layout) Log(component string) string {
	return filepath.Join(l.LogDir(), component+".log")
}

// PID is the file that identifies the process of one component.
func (l Layout) PID(component string) string {
	return filepath.Join(l.Dir, "pid", component)
}

// Conf is a configuration file of a component.
func (l Layout) Conf(name string) string { return filepath.Join(l.Dir, "conf", name) }

// PKI is a key or certificate.
func (l Layout) PKI(name string) string { return filepath.Join(l.Dir, "conf", "pki", name) }

// EtcdData is etcd's data folder.
func (l Layout) EtcdData() string { return filepath.Join(l.Dir, "etcd") }

// Paths of the node, by their short name: they hold sockets, and the kubelet and
// containerd pass them on to programs that put sockets there.

// KubeletRoot is the kubelet's root folder. With a longer name than this, the
// registration socket of gpu.memslice.dev would not fit.
func (l Layout) KubeletRoot() string { return filepath.Join(l.Short, "node") }

// PodLogs is where containers' output goes.
func (l Layout) PodLogs() string { return filepath.Join(l.Short, "podlogs") }

// CDI is the folder of CDI specs that containerd reads.
func (l Layout) CDI() string { return filepath.Join(l.Short, "cdi") }

// ContainerdRoot is containerd's persistent data.
func (l Layout) ContainerdRoot() string { return filepath.Join(l.Short, "containerd") }

// Run is what is meaningless after a reboot: sockets, runtime state, leases of
// pod addresses.
func (l Layout) Run() string { return filepath.Join(l.Short, "run") }

// ContainerdSocket is containerd's gRPC and CRI socket.
func (l Layout) ContainerdSocket() string { return filepath.Join(l.Run(), "containerd.sock") }

// CNIConf is the folder of the pod network's configuration.
func (l Layout) CNIConf() string { return filepath.Join(l.Short, "conf", "cni") }

// Namespace is the file that the node's mount namespace is pinned to.
func (l Layout) Namespace() string { return filepath.Join(l.Short, "mntns") }

// Shadow is the folder that the node sees at a path that programs have built in,
// so that the machine's own folder there is left alone.
func (l Layout) Shadow(name string) string { return filepath.Join(l.Short, "shadow", name) }

// CgroupRoot is the name of the cgroup, below the root of each hierarchy, in
// which the node's processes and pods live.
func (l Layout) CgroupRoot() string { return "memslice-" + l.ID }

// Entries are the names that may be in Dir, all of which go away with the
// cluster. driver-root is where simulated GPUs are put.
func Entries() []string {
	return []string{
		"cdi", "conf", "containerd", "driver-root", "etcd", "kubeconfig", "log", "mntns",
		"node", "pid", "podlogs", "run", "shadow", "state.json", "state.json.tmp",
	}
}
