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

package config

import (
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/memslice/memslice/pkg/gpu"
)

// Place is where on the node the plugin is found, by the kubelet and by the
// probes. These need to know nothing else.
type Place struct {
	PodUID string // empty where the plugin does not run in a pod

	// KubeletRootDir is the same path for the kubelet and for this process.
	KubeletRootDir string
}

// DefaultPlace is that of a plugin outside of a pod.
func DefaultPlace() Place { return Place{KubeletRootDir: "/var/lib/kubelet"} }

// AddFlags binds p to flags whose defaults are the present values.
func (p *Place) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.PodUID, "pod-uid", p.PodUID, "UID of the pod that the plugin runs in; lets an old and a new pod serve together during an update")
	fs.StringVar(&p.KubeletRootDir, "kubelet-root-dir", p.KubeletRootDir, "the kubelet's --root-dir")
}

// Validate reports every setting that cannot work, by the name of its flag.
func (p *Place) Validate() error { return p.validate().ToAggregate() }

func (p *Place) validate() (errs field.ErrorList) {
	if p.PodUID != "" {
		// It becomes part of socket names.
		for _, msg := range utilvalidation.IsDNS1123Label(p.PodUID) {
			errs = append(errs, field.Invalid(flagPath("pod-uid"), p.PodUID, msg))
		}
	}
	return append(errs, absolute("kubelet-root-dir", p.KubeletRootDir)...)
}

// PluginDir is where the plugin keeps what must outlive it, and its sockets.
func (p *Place) PluginDir() string {
	return filepath.Join(p.KubeletRootDir, "plugins", gpu.DriverName)
}

// RegistryDir is where the kubelet watches for registration sockets.
func (p *Place) RegistryDir() string {
	return filepath.Join(p.KubeletRootDir, "plugins_registry")
}

// DRASocket is where the kubelet calls the plugin.
func (p *Place) DRASocket() string { return filepath.Join(p.PluginDir(), p.socketName("dra")) }

// HealthSocket is where the probes of the pod call the plugin.
func (p *Place) HealthSocket() string { return filepath.Join(p.PluginDir(), p.socketName("health")) }

// RegistrationSocket is where the kubelet finds the plugin.
func (p *Place) RegistrationSocket() string {
	name := gpu.DriverName + "-reg.sock"
	if p.PodUID != "" {
		name = kubeletplugin.RollingUpdateRegistrarSocketFile(p.RegistryDir(), gpu.DriverName, types.UID(p.PodUID))
	}
	return filepath.Join(p.RegistryDir(), name)
}

func (p *Place) socketName(base string) string {
	if p.PodUID != "" {
		base += "-" + p.PodUID
	}
	return base + ".sock"
}
