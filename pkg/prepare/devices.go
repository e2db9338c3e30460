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

package prepare

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/pkg/gpu"
)

// What containers read of a grant in the metadata file, which has room for
// attributes only.
const (
	attributeUUID    = "uuid"
	attributeMemory  = "grantedMemoryBytes"
	attributeCompute = "grantedComputePercent"
)

// devices is the grants in terms of the kubelet, each with the CDI device of its
// own that tells it from the others.
func (p *Preparer) devices(grants []gpu.Grant, ids []string) []kubeletplugin.Device {
	var devices []kubeletplugin.Device
	for i, g := range grants {
		device := kubeletplugin.Device{
			Requests:     []string{g.Request},
			PoolName:     g.Pool,
			DeviceName:   g.Device,
			CDIDeviceIDs: []string{ids[i]},
			Metadata:     &kubeletplugin.DeviceMetadata{Attributes: p.attributes(g)},
		}
		if g.ShareID != "" {
			device.ShareID = ptr.To(types.UID(g.ShareID))
		}
		devices = append(devices, device)
	}
	return devices
}

func (p *Preparer) attributes(g gpu.Grant) map[string]resourceapi.DeviceAttribute {
	attributes := map[string]resourceapi.DeviceAttribute{attributeUUID: {StringValue: &g.UUID}}
	if device, ok := p.Devices.Device(g.Pool, g.Device); ok && p.Attributes != nil {
		for name, value := range p.Attributes(device) {
			attributes[string(name)] = value
		}
	}
	if g.Memory > 0 {
		attributes[attributeMemory] = resourceapi.DeviceAttribute{IntValue: &g.Memory}
	}
	if g.Compute > 0 {
		attributes[attributeCompute] = resourceapi.DeviceAttribute{IntValue: &g.Compute}
	}
	return attributes
}
