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

package harness

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/pkg/gpu"
)

// Device is a published device.
type Device struct {
	Pool, Name string
	Type       string // TypeShare, TypeWhole or TypeMIG
	// UUID is the device's own. A MIG instance that is yet to be made has none:
	// there it names the place.
	UUID         string
	GPU          string // UUID of the card
	Product      string
	Architecture string
	Profile      string // of a MIG device
	Memory       int64  // bytes; 0 where none is published
	Driver       string // version, without zeros in front
	// Taints are their keys without the driver's prefix, with spaces between.
	Taints string
}

// The types of devices.
const (
	TypeShare = "slice"
	TypeWhole = "gpu"
	TypeMIG   = "mig"
)

// Devices are memslice's on the node, in the order in which the scheduler tries them.
func (c *Cluster) Devices(ctx context.Context) ([]Device, error) {
	list, err := c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + DriverName + "," + resourceapi.ResourceSliceSelectorNodeName + "=" + c.NodeName,
	})
	if err != nil {
		return nil, fmt.Errorf("list ResourceSlices: %w", err)
	}
	return devicesOf(list.Items), nil
}

// devicesOf looks at the latest generation of each pool, in the slices' order.
func devicesOf(all []resourceapi.ResourceSlice) []Device {
	latest := map[string]int64{}
	for _, s := range all {
		latest[s.Spec.Pool.Name] = max(latest[s.Spec.Pool.Name], s.Spec.Pool.Generation)
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b resourceapi.ResourceSlice) int {
		return cmp.Or(cmp.Compare(a.Spec.Pool.Name, b.Spec.Pool.Name), cmp.Compare(a.Name, b.Name))
	})
	var devices []Device
	for _, s := range all {
		if s.Spec.Pool.Generation != latest[s.Spec.Pool.Name] {
			continue
		}
		for _, d := range s.Spec.Devices {
			text := func(name resourceapi.QualifiedName) string {
				if value := d.Attributes[name].StringValue; value != nil {
					return *value
				}
				return ""
			}
			memory := d.Capacity["memory"].Value
			devices = append(devices, Device{
				Pool: s.Spec.Pool.Name, Name: d.Name, Type: text("type"), UUID: text("uuid"), GPU: text("parentUUID"),
				Product: text("productName"), Architecture: text("architecture"), Profile: text("profile"),
				Memory: memory.Value(), Driver: driverOf(d), Taints: taintsOf(d),
			})
		}
	}
	return devices
}

func driverOf(d resourceapi.Device) string {
	return ptr.Deref(d.Attributes["driverVersion"].VersionValue, "")
}

func taintsOf(d resourceapi.Device) string {
	var keys []string
	for _, taint := range d.Taints {
		keys = append(keys, strings.TrimPrefix(taint.Key, DriverName+"/"))
	}
	return strings.Join(keys, " ")
}

// Grant is one result of a claim's allocation.
type Grant struct {
	Claim   string
	Request string // with the alternative that was chosen: "gpu/small"
	ShareID string
	Admin   bool
	Memory  int64 // bytes
	Device  Device
}

// Grants are what a claim was allocated of memslice's devices.
func (c *Cluster) Grants(ctx context.Context, namespace, claim string) ([]Grant, error) {
	object, err := c.Client.ResourceV1().ResourceClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get ResourceClaim %s/%s: %w", namespace, claim, err)
	}
	devices, err := c.Devices(ctx)
	if err != nil {
		return nil, err
	}
	return grantsOf(object, devices)
}

func grantsOf(claim *resourceapi.ResourceClaim, devices []Device) ([]Grant, error) {
	if claim.Status.Allocation == nil {
		return nil, nil
	}
	var grants []Grant
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != DriverName {
			continue
		}
		at := slices.IndexFunc(devices, func(d Device) bool { return d.Pool == result.Pool && d.Name == result.Device })
		if at < 0 {
			return nil, fmt.Errorf("ResourceClaim %s/%s is allocated %s/%s, which is not published", claim.Namespace, claim.Name, result.Pool, result.Device)
		}
		grant := Grant{Claim: claim.Name, Request: result.Request, Memory: devices[at].Memory, Device: devices[at]}
		if result.ShareID != nil {
			grant.ShareID = string(*result.ShareID)
		}
		if result.AdminAccess != nil {
			grant.Admin = *result.AdminAccess
		}
		if memory, ok := result.ConsumedCapacity["memory"]; ok {
			grant.Memory = memory.Value()
		}
		grants = append(grants, grant)
	}
	return grants, nil
}

// PodGrants are what the claims of a pod were allocated.
func (c *Cluster) PodGrants(ctx context.Context, pod *corev1.Pod) ([]Grant, error) {
	var all []Grant
	for claim := range resourceclaim.PodClaims(pod) {
		grants, err := c.Grants(ctx, pod.Namespace, claim)
		if err != nil {
			return nil, err
		}
		all = append(all, grants...)
	}
	return all, nil
}

// ShortID is the name of a GPU in memslice's device names.
func ShortID(uuid string) string { return (&gpu.GPU{UUID: uuid}).ID() }

// MemoryVariable is the environment variable with the bytes of one request.
func MemoryVariable(request string) string { return "MEMSLICE_MEMORY_BYTES_" + suffix(request) }

// UUIDVariable is the environment variable with the UUID of its GPU.
func UUIDVariable(request string) string { return "MEMSLICE_GPU_UUID_" + suffix(request) }

// suffix is the claim's own name of a request, without the chosen alternative.
func suffix(request string) string {
	return strings.ToUpper(strings.ReplaceAll(resourceclaim.BaseRequestRef(request), "-", "_"))
}
