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

package state

import (
	"fmt"
	"slices"
	"strings"
)

// Query names one question about a GPU, so that a failure can be injected
// into it. All versions of an NVML function share one name: the function's
// without "nvmlDevice" and "Get", beginning in lower case. Those that make and
// destroy begin with the verb, and a question about an instance is one about
// its GPU.
type Query string

// The queries that the simulated library answers.
const (
	QueryHandle              Query = "handle"
	QueryName                Query = "name"
	QueryBrand               Query = "brand"
	QueryUUID                Query = "uuid"
	QuerySerial              Query = "serial"
	QueryIndex               Query = "index"
	QueryMinorNumber         Query = "minorNumber"
	QueryPCIInfo             Query = "pciInfo"
	QueryNUMANodeID          Query = "numaNodeId"
	QueryAddressingMode      Query = "addressingMode"
	QueryArchitecture        Query = "architecture"
	QueryComputeCapability   Query = "cudaComputeCapability"
	QueryNumGPUCores         Query = "numGpuCores"
	QueryAttributes          Query = "attributes"
	QueryMemoryInfo          Query = "memoryInfo"
	QueryComputeMode         Query = "computeMode"
	QueryPersistenceMode     Query = "persistenceMode"
	QueryComputeProcesses    Query = "computeRunningProcesses"
	QueryGraphicsProcesses   Query = "graphicsRunningProcesses"
	QueryMPSComputeProcesses Query = "mpsComputeRunningProcesses"
	QueryMIGMode             Query = "migMode"
	QueryMaxMIGDeviceCount   Query = "maxMigDeviceCount"
	QueryMIGDeviceHandle     Query = "migDeviceHandle"
	QueryGPUInstanceProfile  Query = "gpuInstanceProfileInfo"
	QueryPossiblePlacements  Query = "gpuInstancePossiblePlacements"
	QueryRemainingCapacity   Query = "gpuInstanceRemainingCapacity"
	QueryGPUInstances        Query = "gpuInstances"
	QueryEvents              Query = "events"
	QueryMemoryLimits        Query = "memoryLimits"

	QuerySetMIGMode             Query = "setMigMode"
	QuerySetMemoryLimits        Query = "setMemoryLimits"
	QueryCreateGPUInstance      Query = "createGpuInstance"
	QueryDestroyGPUInstance     Query = "destroyGpuInstance"
	QueryGPUInstanceInfo        Query = "gpuInstanceInfo"
	QueryGPUInstanceID          Query = "gpuInstanceId"
	QueryComputeInstanceProfile Query = "computeInstanceProfileInfo"
	QueryCreateComputeInstance  Query = "createComputeInstance"
	QueryDestroyComputeInstance Query = "destroyComputeInstance"
	QueryComputeInstances       Query = "computeInstances"
	QueryComputeInstanceInfo    Query = "computeInstanceInfo"
	QueryComputeInstanceID      Query = "computeInstanceId"
)

var queries = []Query{
	QueryHandle, QueryName, QueryBrand, QueryUUID, QuerySerial, QueryIndex, QueryMinorNumber, QueryPCIInfo,
	QueryNUMANodeID, QueryAddressingMode, QueryArchitecture, QueryComputeCapability, QueryNumGPUCores,
	QueryAttributes, QueryMemoryInfo, QueryComputeMode, QueryPersistenceMode, QueryComputeProcesses,
	QueryGraphicsProcesses, QueryMPSComputeProcesses, QueryMIGMode, QueryMaxMIGDeviceCount, QueryMIGDeviceHandle,
	QueryGPUInstanceProfile, QueryPossiblePlacements, QueryRemainingCapacity, QueryGPUInstances, QueryEvents,
	QueryMemoryLimits, QuerySetMemoryLimits,
	QuerySetMIGMode, QueryCreateGPUInstance, QueryDestroyGPUInstance, QueryGPUInstanceInfo, QueryGPUInstanceID,
	QueryComputeInstanceProfile, QueryCreateComputeInstance, QueryDestroyComputeInstance, QueryComputeInstances,
	QueryComputeInstanceInfo, QueryComputeInstanceID,
}

// Queries lists every query.
func Queries() []Query { return slices.Clone(queries) }

// ParseQuery accepts the names in Queries.
func ParseQuery(name string) (Query, error) {
	if !slices.Contains(queries, Query(name)) {
		names := make([]string, len(queries))
		for i, query := range queries {
			names[i] = string(query)
		}
		return "", fmt.Errorf("unknown query %q: use one of %s", name, strings.Join(names, ", "))
	}
	return Query(name), nil
}

// UnmarshalText refuses queries that the library does not have.
func (q *Query) UnmarshalText(text []byte) error {
	query, err := ParseQuery(string(text))
	if err != nil {
		return err
	}
	*q = query
	return nil
}
