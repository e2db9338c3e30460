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
	"io/fs"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/pkg/gpu"
)

// scanner reads all GPUs once, within a session.
type scanner struct {
	api   nvml.Interface
	sysfs fs.ReadLinkFS

	// cgroup is that of this process, and tried is on which GPUs its memory was
	// limited with success, or without as that is not supported.
	cgroup func() (string, error)
	tried  map[string]bool

	gpus     []gpu.GPU
	handles  map[string]nvml.Device // by UUID
	problems []Problem
	lost     bool // a GPU was
	ended    *sessionEnded
}

// sessionEnded is the answer of an NVML that has to be initialised again.
type sessionEnded struct {
	query string
	ret   nvml.Return
}

// endsSession tells whether the driver left while NVML was in use.
func endsSession(ret nvml.Return) bool {
	return ret == nvml.ERROR_UNINITIALIZED || ret == nvml.ERROR_DRIVER_NOT_LOADED || ret == nvml.ERROR_LIB_RM_VERSION_MISMATCH
}

func (e *sessionEnded) Error() string { return fmt.Sprintf("%s: %v", e.query, e.ret) }

func (s *scanner) scan(ctx context.Context) error {
	count, ret := s.api.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return &sessionEnded{"nvmlDeviceGetCount", ret}
	}
	driver := s.driver()
	for index := range count {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("reading GPU %d of %d: %w", index, count, err)
		}
		s.gpu(index, driver)
		if s.ended != nil {
			return s.ended
		}
	}
	return nil
}

func (s *scanner) inventory() Inventory {
	slices.SortFunc(s.gpus, func(a, b gpu.GPU) int {
		return cmp.Or(cmp.Compare(a.PCIBusID, b.PCIBusID), cmp.Compare(a.UUID, b.UUID))
	})
	return Inventory{GPUs: s.gpus, Problems: s.problems}
}

// driver tells what all GPUs have in common.
func (s *scanner) driver() gpu.GPU {
	t := target{scanner: s, name: "all GPUs"}
	var g gpu.GPU
	g.DriverVersion, _ = query(&t, "nvmlSystemGetDriverVersion", s.api.SystemGetDriverVersion)
	if version, ok := query(&t, "nvmlSystemGetCudaDriverVersion", s.api.SystemGetCudaDriverVersion); ok {
		g.CUDADriverVersion = cudaVersion(version)
	}
	return g
}

// gpu adds the GPU at NVML's index to what was found. g has what all have in
// common.
func (s *scanner) gpu(index int, g gpu.GPU) {
	t := target{scanner: s, name: fmt.Sprintf("GPU at index %d", index)}
	handle, ret := s.api.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		t.leaveOut("nvmlDeviceGetHandleByIndex", ret)
		return
	}
	uuid, ret := handle.GetUUID()
	if ret != nvml.SUCCESS {
		if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
			t.name = "GPU at PCI address " + busID(pci)
		}
		t.leaveOut("nvmlDeviceGetUUID", ret)
		return
	}
	g.UUID = uuid
	t.name = "GPU " + uuid
	if slices.ContainsFunc(s.gpus, func(other gpu.GPU) bool { return other.UUID == uuid }) {
		// Indexes moved between two questions. The next scan sees them settled.
		t.problem("nvmlDeviceGetHandleByIndex", fmt.Errorf("index %d is a GPU that was seen before", index), true)
		return
	}
	t.read(handle, &g)
	if !t.lost {
		s.gpus = append(s.gpus, g)
		s.handles[uuid] = handle
	}
}

// target is what questions are put to: a GPU, or the driver.
type target struct {
	*scanner
	name string
	lost bool
}

// query asks one question. ok is false where there is no answer, which is a
// problem unless NVML says that the question does not apply. symbol is the
// library's function behind ask.
func query[T any](t *target, symbol string, ask func() (T, nvml.Return)) (answer T, ok bool) {
	if t.lost {
		return answer, false
	}
	ret := nvml.ERROR_FUNCTION_NOT_FOUND
	if t.has(symbol) {
		answer, ret = ask()
	}
	switch ret {
	case nvml.SUCCESS:
		return answer, true
	case nvml.ERROR_NOT_SUPPORTED:
	case nvml.ERROR_GPU_IS_LOST:
		t.leaveOut(symbol, ret)
	default:
		t.failed(symbol, ret, false)
	}
	var none T
	return none, false
}

// has tells whether the library has a function. Calling one that it lacks
// would end this process.
func (s *scanner) has(symbol string) bool {
	return s.api.Extensions().LookupSymbol(symbol) == nil
}

func (t *target) leaveOut(query string, ret nvml.Return) {
	t.lost = true
	t.failed(query, ret, true)
}

func (t *target) failed(query string, ret nvml.Return, leftOut bool) {
	if endsSession(ret) {
		t.ended = &sessionEnded{query, ret}
	}
	if ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED {
		t.scanner.lost = true
	}
	t.problem(query, ret, leftOut)
}

func (t *target) problem(query string, err error, leftOut bool) {
	t.problems = append(t.problems, Problem{GPU: t.name, Query: query, Err: err, LeftOut: leftOut})
}
