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

package claim

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
)

// wish is what the configuration of a claim and its classes asks for one
// result.
type wish struct {
	mechanism v1alpha1.Isolation
	origin    string // of the mechanism: which configuration asked for it
}

// shareConfig reads all configuration that applies to a result: that of the
// device class first, then that of the claim, each in the order given. A later
// one wins, field by field, and takes nothing away by not setting a field.
func shareConfig(configs []resourceapi.DeviceAllocationConfiguration, result *resourceapi.DeviceRequestAllocationResult) (wish, error) {
	var want v1alpha1.ShareConfig
	var origin string
	for _, class := range []bool{true, false} {
		for i := range configs {
			if class != (configs[i].Source == resourceapi.AllocationConfigSourceClass) {
				continue
			}
			// One at a time, to know the index of what applies.
			if len(resourceclaim.ConfigForResult(configs[i:i+1], *result)) == 0 || configs[i].Opaque.Driver != gpu.DriverName {
				continue
			}
			path := field.NewPath("status", "allocation", "devices", "config").Index(i)
			name := fmt.Sprintf("%s (%s)", path, sourceName(configs[i].Source))
			config, err := decode(configs[i].Opaque, path.Child("opaque", "parameters"))
			if err != nil {
				return wish{}, fmt.Errorf("configuration %s: %w", name, err)
			}
			if config.Isolation != "" {
				want.Isolation, origin = config.Isolation, name
			}
		}
	}
	want.Default()
	return wish{mechanism: want.Isolation, origin: origin}, nil
}

func sourceName(source resourceapi.AllocationConfigSource) string {
	if source == resourceapi.AllocationConfigSourceClass {
		return "from the device class"
	}
	return "from the claim"
}

func decode(opaque *resourceapi.OpaqueDeviceConfiguration, path *field.Path) (*v1alpha1.ShareConfig, error) {
	config, err := v1alpha1.DecodeShareConfig(opaque.Parameters.Raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if errs := config.Validate(path); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return config, nil
}

// isolation is what is to hold a grant of a device to its memory, or why the
// device does not do what is asked for. A whole GPU and admin access have no
// neighbour to be isolated from by an amount, and the hardware that keeps a MIG
// partition apart is at least as strict as any mechanism.
func (w wish) isolation(grant gpu.Grant, device gpu.Device) (gpu.Isolation, error) {
	if grant.AdminAccess {
		return gpu.IsolationNone, nil
	}
	if grant.Form != gpu.Slice || w.mechanism == v1alpha1.IsolationAny {
		return device.MemoryIsolation, nil
	}
	if w.mechanism == v1alpha1.IsolationNone {
		if device.MustIsolate {
			return "", fmt.Errorf("isolation None is asked for by configuration %s, but this node shares GPU %s only with isolation (isolation.required in its NodeConfig): allow Any, or have the request select another node",
				w.origin, grant.UUID)
		}
		return gpu.IsolationNone, nil
	}
	// Attributes spell the mechanisms as configuration does, in lower case.
	required := gpu.Isolation(strings.ToLower(string(w.mechanism)))
	if device.MemoryIsolation == required {
		return required, nil
	}
	return "", fmt.Errorf("isolation %s is required by configuration %s, but GPU %s offers %q: allow Any or None, or have the request select a GPU with the CEL expression device.attributes[%q].memoryIsolation == %q",
		w.mechanism, w.origin, grant.UUID, device.MemoryIsolation, gpu.DriverName, required)
}
