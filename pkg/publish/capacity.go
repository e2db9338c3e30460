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

package publish

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/memslice/memslice/pkg/gpu"
)

type capacities = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity

// capacity of a whole GPU without a memory figure is zero rather than absent:
// a CEL expression over a capacity that one device lacks is an error, which
// ends the scheduling of the claim, also onto the GPUs that do match.
func capacity(d gpu.Device) capacities {
	switch d.Form {
	case gpu.Whole:
		return capacities{gpu.CapacityMemory: {Value: *bytes(d.Memory)}}
	case gpu.MIG:
		return partitionCapacity(d)
	}
	all := capacities{
		gpu.CapacityMemory: {
			Value:         *bytes(d.Memory),
			RequestPolicy: memoryPolicy(d),
		},
		gpu.CapacityCompute: {
			Value: *number(100),
			RequestPolicy: &resourceapi.CapacityRequestPolicy{
				Default:    number(0),
				ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: number(0), Step: number(1)},
			},
		},
	}
	for rank := range d.Ranks {
		all[resourceapi.QualifiedName(fmt.Sprint(gpu.CapacityRank, rank+1))] = resourceapi.DeviceCapacity{
			Value: *number(1),
			RequestPolicy: &resourceapi.CapacityRequestPolicy{
				Default:    number(0),
				ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: number(0), Max: number(1), Step: number(1)},
			},
		}
	}
	return all
}

// partitionCapacity is all that NVML tells, also where there is none of it, for
// the reason above.
func partitionCapacity(d gpu.Device) capacities {
	p := d.Profile
	all := capacities{gpu.CapacityMemory: {Value: *bytes(d.Memory)}}
	for name, n := range map[resourceapi.QualifiedName]int{
		"multiprocessors": p.Multiprocessors,
		"copyEngines":     p.Engines.Copy,
		"decoders":        p.Engines.Decoders,
		"encoders":        p.Engines.Encoders,
		"jpegEngines":     p.Engines.JPEG,
		"ofaEngines":      p.Engines.OFA,
	} {
		all[name] = resourceapi.DeviceCapacity{Value: *number(int64(n))}
	}
	return all
}

// memoryPolicy has no maximum, as the capacity itself is one. A claim that
// names no memory gets all of it: a default of zero would let such claims onto
// a GPU that is full.
func memoryPolicy(d gpu.Device) *resourceapi.CapacityRequestPolicy {
	policy := &resourceapi.CapacityRequestPolicy{
		Default:    bytes(d.Memory),
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: bytes(d.MemoryMin)},
	}
	// The API refuses a step that cannot be taken even once.
	if d.MemoryStep <= d.Memory-d.MemoryMin {
		policy.ValidRange.Step = bytes(d.MemoryStep)
	}
	return policy
}

func number(n int64) *resource.Quantity {
	return resource.NewQuantity(n, resource.DecimalSI)
}

func bytes(n int64) *resource.Quantity {
	return resource.NewQuantity(n, resource.BinarySI)
}
