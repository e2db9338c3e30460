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

package driverroot

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// PCI classes of GPUs with and without a display.
const (
	classVGA = "0x030000"
	class3D  = "0x030200"
)

// syncSysfs writes what sysfs would say about the GPUs: NVML knows nothing of
// root complexes and of the host's NUMA nodes.
func (r *Root) syncSysfs(s *state.State) error {
	lastNode := 0
	for i := range s.GPUs {
		gpu := &s.GPUs[i]
		lastNode = max(lastNode, gpu.NUMANode)
		entry := r.join(filepath.Join("sys/bus/pci/devices", gpu.BusID))
		if gpu.Removed {
			if err := r.remove(entry); err != nil {
				return err
			}
			continue
		}
		device := filepath.Join("devices", gpu.PCIeRoot, gpu.Bridge, gpu.BusID)
		if err := r.addPCIDevice(filepath.Join("sys", device), gpu); err != nil {
			return err
		}
		if err := r.link(filepath.Join("../../..", device), entry); err != nil {
			return err
		}
	}
	return r.addNUMANodes(lastNode + 1)
}

func (r *Root) addPCIDevice(dir string, gpu *state.GPU) error {
	model, err := catalog.Lookup(gpu.Model)
	if err != nil {
		return err
	}
	class := class3D
	if model.Brand == catalog.BrandGeForce {
		class = classVGA
	}
	return r.writeAttributes(dir, map[string]string{
		"numa_node": fmt.Sprint(gpu.NUMANode),
		"class":     class,
		"vendor":    fmt.Sprintf("0x%04x", model.PCIDevice&0xffff),
		"device":    fmt.Sprintf("0x%04x", model.PCIDevice>>16),
	})
}

// addNUMANodes writes the distances of a machine with one node per socket.
func (r *Root) addNUMANodes(count int) error {
	for node := range count {
		distances := make([]string, count)
		for other := range count {
			distances[other] = "21"
			if other == node {
				distances[other] = "10"
			}
		}
		dir := fmt.Sprintf("sys/devices/system/node/node%d", node)
		if err := r.writeAttributes(dir, map[string]string{"distance": strings.Join(distances, " ")}); err != nil {
			return err
		}
	}
	return nil
}

func (r *Root) writeAttributes(dir string, attributes map[string]string) error {
	for name, value := range attributes {
		if err := r.writeFile(r.join(filepath.Join(dir, name)), []byte(value+"\n"), 0o444); err != nil {
			return err
		}
	}
	return nil
}
