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
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/pkg/gpu"
)

// Devices is what this node has to offer at the moment.
type Devices interface {
	// Device looks up a device by its pool and its name there.
	Device(pool, name string) (gpu.Device, bool)
}

// Plan is what one claim is to be given on this node.
type Plan struct {
	UID       types.UID
	Namespace string
	Name      string

	// Grants are in the order of the allocation. There are none where the claim
	// has devices of other drivers only.
	Grants []gpu.Grant
}

// String is the claim as users know it, namespace/name.
func (p Plan) String() string { return p.Namespace + "/" + p.Name }

// InUse tells whether c is still the claim with that UID, and is allocated
// devices of this driver on a node: in the node's pool, or in that of one of its
// GPUs. A claim that outlives its pods may have gone on to another node.
func InUse(c *resourceapi.ResourceClaim, uid types.UID, node string) bool {
	if c.UID != uid || c.Status.Allocation == nil {
		return false
	}
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if r.Driver == gpu.DriverName && (r.Pool == node || strings.HasPrefix(r.Pool, node+"/")) {
			return true
		}
	}
	return false
}

// Pods are those that a claim is reserved for.
func Pods(c *resourceapi.ResourceClaim) (pods []resourceapi.ResourceClaimConsumerReference) {
	for _, consumer := range c.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			pods = append(pods, consumer)
		}
	}
	return pods
}

// ValidateUID refuses a UID that could not be part of a file's name, or of a
// CDI device's.
func ValidateUID(uid types.UID) error {
	if !uidPattern.MatchString(string(uid)) {
		return fmt.Errorf("claim UID %q is not made of 1 to 64 letters, digits and dashes, as those of the API server are", uid)
	}
	return nil
}

var uidPattern = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z-]{0,62}[0-9A-Za-z])?$`)

// FromClaim reads the allocation of a claim. Results of other drivers are left
// alone. The error names the claim, the request, and what to do about it.
func FromClaim(c *resourceapi.ResourceClaim, devices Devices) (Plan, error) {
	plan := Plan{UID: c.UID, Namespace: c.Namespace, Name: c.Name}
	if err := ValidateUID(c.UID); err != nil {
		return Plan{}, fmt.Errorf("claim %s: %w", plan, err)
	}
	if c.Status.Allocation == nil {
		return Plan{}, fmt.Errorf("claim %s: not allocated yet, so there is nothing to prepare", plan)
	}
	allocation := &c.Status.Allocation.Devices
	for i := range allocation.Results {
		result := &allocation.Results[i]
		if result.Driver != gpu.DriverName {
			continue
		}
		grant, err := planResult(result, allocation.Config, devices)
		if err != nil {
			return Plan{}, fmt.Errorf("claim %s, request %q: %w", plan, result.Request, err)
		}
		plan.Grants = append(plan.Grants, grant)
	}
	return plan, nil
}

func planResult(result *resourceapi.DeviceRequestAllocationResult, configs []resourceapi.DeviceAllocationConfiguration, devices Devices) (gpu.Grant, error) {
	device, ok := devices.Device(result.Pool, result.Device)
	if !ok {
		return gpu.Grant{}, NoSuchDevice(result.Pool, result.Device)
	}
	grant, err := newGrant(result, device)
	if err != nil {
		return gpu.Grant{}, fmt.Errorf("device %q in pool %q: %w", result.Device, result.Pool, err)
	}
	want, err := shareConfig(configs, result)
	if err != nil {
		return gpu.Grant{}, err
	}
	grant.Isolation, err = want.isolation(grant, device)
	return grant, err
}

// NoSuchDevice says that this node lacks a device that was allocated.
func NoSuchDevice(pool, device string) error {
	return fmt.Errorf("this node has no device %q in pool %q: check with \"nvidia-smi -L\" on the node that the GPU is there and its driver is loaded; if it is gone for good, delete the pod so that its replacement is allocated another", device, pool)
}

func newGrant(result *resourceapi.DeviceRequestAllocationResult, device gpu.Device) (gpu.Grant, error) {
	grant := gpu.Grant{
		Request:     result.Request,
		Pool:        result.Pool,
		Device:      result.Device,
		ShareID:     string(ptr.Deref(result.ShareID, "")),
		Form:        device.Form,
		UUID:        device.GPU.UUID,
		Partition:   device.Partition,
		Existing:    device.Existing,
		AdminAccess: ptr.Deref(result.AdminAccess, false),
	}
	switch {
	case grant.AdminAccess:
		return grant, nil
	case device.Form == gpu.Slice:
		return grant, readShare(&grant, result)
	}
	grant.Memory = device.Memory
	return grant, nil
}

// readShare takes over what the scheduler has deducted for a share.
func readShare(grant *gpu.Grant, result *resourceapi.DeviceRequestAllocationResult) error {
	if grant.ShareID == "" {
		return errors.New("a share, but the allocation has no shareID to tell it from others: the scheduler must have the feature gate DRAConsumableCapacity, which is on since Kubernetes 1.36")
	}
	memory, ok := result.ConsumedCapacity[gpu.CapacityMemory]
	if !ok {
		return fmt.Errorf("a share, but consumedCapacity in the allocation has no %q, so that the amount granted is unknown: delete the pod so that its claim is allocated again", gpu.CapacityMemory)
	}
	var err error
	if grant.Memory, err = amount(gpu.CapacityMemory, memory, 1, math.MaxInt64); err != nil {
		return err
	}
	if compute, ok := result.ConsumedCapacity[gpu.CapacityCompute]; ok {
		grant.Compute, err = amount(gpu.CapacityCompute, compute, 0, 100)
	}
	return err
}

// amount is q as a whole number, fractions rounded up as Kubernetes does
// everywhere. Value alone would wrap around where q exceeds 64 bits.
func amount(name string, q resource.Quantity, least, most int64) (int64, error) {
	if q.Sign() < 0 || q.CmpInt64(most) > 0 || q.Value() < least {
		return 0, fmt.Errorf("consumedCapacity[%q] in the allocation is %s, which is not between %d and %d: delete the pod so that its claim is allocated again", name, q.String(), least, most)
	}
	return q.Value(), nil
}
