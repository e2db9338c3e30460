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

package schedulertest_test

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
	"github.com/memslice/memslice/pkg/publish/schedulertest"
)

// resources are GPUs with so many GiB each, in shares and whole.
func resources(node string, memory ...uint64) resourceslice.DriverResources {
	var offers []publish.Offer
	for i, gib := range memory {
		g := gpu.GPU{UUID: fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i+1), Memory: &gpu.Memory{Total: gib << 30}}
		offers = append(offers, publish.Offer{GPU: g, Pool: node, Shares: true, Whole: true, MemoryMin: 1 << 28, MemoryStep: 1 << 20})
	}
	devices, _ := publish.Devices(offers)
	return publish.Resources(node, devices)
}

func share(memory string) resourceapi.DeviceRequest {
	return schedulertest.Request(gpu.Slice, map[resourceapi.QualifiedName]string{gpu.CapacityMemory: memory})
}

// Of several nodes the one wins where a claim gets what it wants most.
func TestNodes(t *testing.T) {
	schedulertest.Versions(t, func(t *testing.T, features structured.Features) {
		s := schedulertest.New(features, "small", resources("small", 10))
		s.Join("large", resources("large", 80))
		either := schedulertest.FirstOf(share("40Gi"), share("5Gi"))
		for _, want := range []string{"large gpu/option0", "large gpu/option0", "small gpu/option1", "small gpu/option1"} {
			_, result := s.MustAllocate(t, either)
			if got := result.Pool + " " + result.Request; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		s.MustStayPending(t, either)
	})
}

// A scheduler that is asked about a few devices knows what has been given away of
// the others.
func TestAsked(t *testing.T) {
	s := schedulertest.New(schedulertest.Latest(), "node", resources("node", 10, 20))
	claim, _ := s.MustAllocate(t, share("10Gi"))
	s.Asked("gpu-00000001-0000").MustStayPending(t, schedulertest.Any())
	s.Asked("gpu-00000001-0000-slice").MustStayPending(t, share("1Gi"))
	other, result := s.Asked("gpu-00000002-0000").MustAllocate(t, schedulertest.Any())
	if result.Device != "gpu-00000002-0000" {
		t.Errorf("got %s", result.Device)
	}
	s.MustStayPending(t, share("1Gi"))
	s.Release(other)
	s.Release(claim)
	s.Asked("gpu-00000001-0000").MustAllocate(t, schedulertest.Any())
}
