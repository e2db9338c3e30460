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

package schedulertest

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/memslice/memslice/pkg/gpu"
)

// Request asks for one device of a form, with these capacities, that all
// selectors match.
func Request(form gpu.Form, capacity map[resourceapi.QualifiedName]string, selectors ...string) resourceapi.DeviceRequest {
	exactly := &resourceapi.ExactDeviceRequest{
		DeviceClassName: class(form),
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
		Count:           1,
	}
	for name, amount := range capacity {
		if exactly.Capacity == nil {
			exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
		}
		exactly.Capacity.Requests[name] = resource.MustParse(amount)
	}
	for _, selector := range selectors {
		exactly.Selectors = append(exactly.Selectors, resourceapi.DeviceSelector{
			CEL: &resourceapi.CELDeviceSelector{Expression: selector},
		})
	}
	return resourceapi.DeviceRequest{Name: "gpu", Exactly: exactly}
}

// Any asks for one device of any form. The scheduler spends no time on finding
// out which form that is.
func Any() resourceapi.DeviceRequest { return Request("any", nil) }

// FirstOf asks for the first of several requests that can be had. The
// alternatives have the names option0, option1, and so on.
func FirstOf(requests ...resourceapi.DeviceRequest) resourceapi.DeviceRequest {
	first := resourceapi.DeviceRequest{Name: "gpu"}
	for i, r := range requests {
		first.FirstAvailable = append(first.FirstAvailable, resourceapi.DeviceSubRequest{
			Name:            fmt.Sprint("option", i),
			DeviceClassName: r.Exactly.DeviceClassName,
			Selectors:       r.Exactly.Selectors,
			AllocationMode:  r.Exactly.AllocationMode,
			Count:           r.Exactly.Count,
			Tolerations:     r.Exactly.Tolerations,
			Capacity:        r.Exactly.Capacity,
		})
	}
	return first
}

func class(form gpu.Form) string { return string(form) + ".memslice.dev" }

// classes are the DeviceClasses that are installed with the driver, and one for
// devices of any form.
type classes []*resourceapi.DeviceClass

func newClasses() classes {
	all := classes{{ObjectMeta: metav1.ObjectMeta{Name: class("any")}}}
	for _, form := range []gpu.Form{gpu.Slice, gpu.Whole, gpu.MIG} {
		expression := fmt.Sprintf(`device.driver == %q && device.attributes[%q].?type.orValue("") == %q`, gpu.DriverName, gpu.DriverName, form)
		all = append(all, &resourceapi.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: class(form)},
			Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
				{CEL: &resourceapi.CELDeviceSelector{Expression: expression}},
			}},
		})
	}
	return all
}

// List gives all classes.
func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

// Get finds a class by its name.
func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("no device class %q", name)
}
