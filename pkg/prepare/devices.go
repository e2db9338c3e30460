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
	"cmp"

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

// devices is the assignments in terms of the kubelet, each with the CDI device of
// its own that tells it from the others.
func (p *Preparer) devices(assignments []gpu.Assignment, ids []string) []kubeletplugin.Device {
	var devices []kubeletplugin.Device
	for i, a := range assignments {
		device := kubeletplugin.Device{
			Requests:     []string{a.Request},
			PoolName:     a.Pool,
			DeviceName:   a.Device,
			CDIDeviceIDs: []string{ids[i]},
			Metadata:     &kubeletplugin.DeviceMetadata{Attributes: p.attributes(a)},
		}
		if a.ShareID != "" {
			device.ShareID = ptr.To(types.UID(a.ShareID))
		}
		devices = append(devices, device)
	}
	return devices
}

func (p *Preparer) attributes(a gpu.Assignment) map[string]resourceapi.DeviceAttribute {
	attributes := make(map[string]resourceapi.DeviceAttribute)
	if device, ok := p.Devices.Device(a.Pool, a.Device); ok && p.Attributes != nil {
		for name, value := range p.Attributes(device) {
			attributes[string(name)] = value
		}
	}
	// What is published is the same for every instance that is made of a device.
	attributes[attributeUUID] = resourceapi.DeviceAttribute{StringValue: ptr.To(cmp.Or(a.Instance.UUID, a.UUID))}
	if a.Memory > 0 {
		attributes[attributeMemory] = resourceapi.DeviceAttribute{IntValue: &a.Memory}
	}
	if a.Compute > 0 {
		attributes[attributeCompute] = resourceapi.DeviceAttribute{IntValue: &a.Compute}
	}
	return attributes
}
