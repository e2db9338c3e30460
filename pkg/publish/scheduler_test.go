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
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish/schedulertest"
)

const nodeName = "node-1"

// schedulers are those of the supported versions of Kubernetes.
func schedulers(t *testing.T, run func(t *testing.T, features structured.Features)) {
	schedulertest.Versions(t, run)
}

// schedulerFor publishes shares and wholes with the default amounts.
func schedulerFor(features structured.Features, gpus []gpu.GPU) *schedulertest.Scheduler {
	return schedulerOf(features, offers(gpus))
}

func schedulerOf(features structured.Features, offers []Offer) *schedulertest.Scheduler {
	devices, _ := Devices(offers)
	return schedulertest.New(features, nodeName, Resources(nodeName, devices))
}

func shareRequest(capacity map[resourceapi.QualifiedName]string) resourceapi.DeviceRequest {
	return schedulertest.Request(gpu.Slice, capacity)
}

func wholeRequest() resourceapi.DeviceRequest { return schedulertest.Request(gpu.Whole, nil) }

func migRequest(selectors ...string) resourceapi.DeviceRequest {
	return schedulertest.Request(gpu.MIG, nil, selectors...)
}

func memory(amount string) map[resourceapi.QualifiedName]string {
	return map[resourceapi.QualifiedName]string{gpu.CapacityMemory: amount}
}

func compute(amount string) map[resourceapi.QualifiedName]string {
	return map[resourceapi.QualifiedName]string{gpu.CapacityMemory: "256Mi", gpu.CapacityCompute: amount}
}
