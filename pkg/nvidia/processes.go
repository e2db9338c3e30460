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

package nvidia

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/pkg/gpu"
)

// featureProcesses came with R510.
var featureProcesses = feature{"the memory of processes", []string{"nvmlDeviceGetComputeRunningProcesses_v3"}}

// unknownMemory is what NVML says where it cannot tell, and noInstance where
// there is none (NVML_VALUE_NOT_AVAILABLE, 0xFFFFFFFF).
const (
	unknownMemory = math.MaxUint64
	noInstance    = math.MaxUint32
)

// Processes lists who uses a GPU, by process id: each process once, or once for
// each MIG instance that it runs in.
func (c *Client) Processes(_ context.Context, uuid string) ([]gpu.Process, error) {
	return onGPU(c, uuid, featureProcesses, "listing its processes", func(handle nvml.Device) ([]gpu.Process, error) {
		s := scanner{api: c.library.api}
		var all []gpu.Process
		for _, kind := range []struct {
			function string
			list     func() ([]nvml.ProcessInfo, nvml.Return)
		}{
			{"nvmlDeviceGetComputeRunningProcesses_v3", handle.GetComputeRunningProcesses},
			{"nvmlDeviceGetMPSComputeRunningProcesses_v3", handle.GetMPSComputeRunningProcesses},
			{"nvmlDeviceGetGraphicsRunningProcesses_v3", handle.GetGraphicsRunningProcesses},
		} {
			if !s.has(kind.function) {
				continue
			}
			infos, ret := kind.list()
			if ret == nvml.ERROR_NOT_SUPPORTED {
				continue
			}
			if ret != nvml.SUCCESS {
				return nil, fmt.Errorf("%s: %w", kind.function, ret)
			}
			for _, info := range infos {
				all = append(all, process(info))
			}
		}
		return distinct(all), nil
	})
}

func process(info nvml.ProcessInfo) gpu.Process {
	p := gpu.Process{PID: int(info.Pid), GPUInstance: gpu.NoGPUInstance}
	if info.UsedGpuMemory != unknownMemory {
		p.Memory, p.MemoryKnown = info.UsedGpuMemory, true
	}
	if info.GpuInstanceId != noInstance {
		p.GPUInstance = int(info.GpuInstanceId)
	}
	return p
}

// distinct keeps of a process that both computes and draws the larger figure.
func distinct(all []gpu.Process) []gpu.Process {
	same := func(a, b gpu.Process) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.GPUInstance, b.GPUInstance))
	}
	slices.SortFunc(all, func(a, b gpu.Process) int { return cmp.Or(same(a, b), cmp.Compare(b.Memory, a.Memory)) })
	return slices.CompactFunc(all, func(a, b gpu.Process) bool { return same(a, b) == 0 })
}
