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

package containerview

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// FromCDI tells what a container would find if a runtime that reads the CDI
// specs in specDir started it with these devices (qualified names).
func FromCDI(specDir string, devices []string) (View, error) {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(specDir), cdi.WithAutoRefresh(false))
	if err != nil {
		return View{}, fmt.Errorf("read the CDI specs in %s: %w", specDir, err)
	}
	var spec oci.Spec
	if _, err := cache.InjectDevices(&spec, devices...); err != nil {
		return View{}, fmt.Errorf("inject CDI devices from %s: %w", specDir, errors.Join(err, damaged(cache)))
	}
	return fromOCI(&spec)
}

// damaged explains why a device is missing where its spec could not be read.
func damaged(cache *cdi.Cache) error {
	var all []error
	for path, errs := range cache.GetErrors() {
		all = append(all, fmt.Errorf("%s: %w", path, errors.Join(errs...)))
	}
	return errors.Join(all...)
}

func fromOCI(spec *oci.Spec) (View, error) {
	view := View{Env: map[string]string{}, Metadata: map[string]string{}}
	if spec.Process != nil {
		for _, variable := range spec.Process.Env {
			if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, envPrefix) {
				view.Env[name] = value
			}
		}
	}
	nodes := map[string]bool{}
	if spec.Linux != nil {
		for _, device := range spec.Linux.Devices {
			nodes[device.Path] = strings.HasPrefix(device.Path, "/dev/nvidia")
		}
	}
	maps.DeleteFunc(nodes, func(_ string, nvidia bool) bool { return !nvidia })
	view.DeviceNodes = slices.Sorted(maps.Keys(nodes))
	for _, mount := range spec.Mounts {
		if !strings.HasPrefix(mount.Destination, metadata.ContainerDir+"/") {
			continue
		}
		text, err := os.ReadFile(mount.Source)
		if err != nil {
			return View{}, fmt.Errorf("the container would not start: mount %s: %w", mount.Destination, err)
		}
		view.Metadata[mount.Destination] = string(text)
	}
	return view, nil
}
