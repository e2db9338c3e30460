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

package cdi

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/memslice/memslice/pkg/gpu"
)

// capabilityMode is that of the driver's own device nodes of capabilities.
const capabilityMode = os.FileMode(0o444)

// addInstances adds a device for each MIG instance: the device node of its GPU,
// which all instances on it share, and those of the capabilities that tell the
// driver which of them a container may use.
func (n *NVIDIA) addInstances(spec *specs.Spec, assignments []gpu.Assignment, minors map[string]int, devRoot, hostDevRoot string) error {
	for _, a := range assignments {
		if a.Form != gpu.MIG {
			continue
		}
		at := slices.IndexFunc(spec.Devices, func(d specs.Device) bool { return d.Name == a.UUID })
		edits := onlyNode(spec.Devices[at].ContainerEdits, gpuNode(minors[a.UUID]))
		capabilities, err := n.capabilities(a.Instance, minors[a.UUID], devRoot, hostDevRoot)
		if err != nil {
			return fmt.Errorf("GPU %s, MIG instance %s: %w", a.UUID, a.Instance.UUID, err)
		}
		edits.DeviceNodes = append(edits.DeviceNodes, capabilities...)
		spec.Devices = append(spec.Devices, specs.Device{Name: a.Instance.UUID, ContainerEdits: edits})
	}
	return nil
}

// onlyNode leaves of a GPU's edits one of its device nodes. The others, and the
// hooks that go with them, are for graphics on the whole GPU.
func onlyNode(edits specs.ContainerEdits, path string) specs.ContainerEdits {
	at := slices.IndexFunc(edits.DeviceNodes, func(d *specs.DeviceNode) bool { return d.Path == path })
	node := *edits.DeviceNodes[at]
	only := specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{&node}}
	if node.GID != nil && slices.Contains(edits.AdditionalGIDs, *node.GID) {
		only.AdditionalGIDs = []uint32{*node.GID}
	}
	return only
}

// capabilities are the device nodes of an instance's capabilities. Only programs
// of the driver make these nodes, where they run, and none of them may have run
// on the host since the instance was made. A container runtime that is told the
// numbers of a node needs none on the host.
func (n *NVIDIA) capabilities(i gpu.Instance, gpuMinor int, devRoot, hostDevRoot string) ([]*specs.DeviceNode, error) {
	var nodes []*specs.DeviceNode
	var missing, remedies []string
	var unknown error
	for _, name := range []string{
		fmt.Sprintf("gi%d/access", i.GPUInstance),
		fmt.Sprintf("gi%d/ci%d/access", i.GPUInstance, i.ComputeInstance),
	} {
		minor, err := n.capabilityMinor(fmt.Sprintf("gpu%d/%s", gpuMinor, name))
		if err != nil {
			return nil, fmt.Errorf("which device node gives access to it: %w; check that the driver is loaded and that --proc-root names the host's procfs", err)
		}
		path := fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor)
		node := &specs.DeviceNode{Path: path, HostPath: filepath.Join(devRoot, path), FileMode: ptr.To(capabilityMode), Permissions: "rw"}
		if !isCharDevice(node.HostPath) {
			node.Type, node.Minor = "c", int64(minor)
			if node.Major, err = n.capabilityMajor(); err != nil {
				missing = append(missing, filepath.Join(hostDevRoot, path))
				remedies = append(remedies, fmt.Sprintf("-f /proc/driver/nvidia/capabilities/gpu%d/mig/%s", gpuMinor, name))
				unknown = err
			}
		}
		nodes = append(nodes, node)
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("missing on the host: device node %s (driver root %s), and a container cannot have its own: %w; create it with \"nvidia-modprobe %s\" there, the kubelet tries again by itself",
			strings.Join(missing, ", "), n.o.HostDriverRoot, unknown, strings.Join(remedies, " "))
	}
	return nodes, nil
}
