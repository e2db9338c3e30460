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
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// ErrGPUUnavailable is why nothing can be done with a GPU that this machine has
// had: it fell off the bus, or was taken out. What was on it is gone or out of
// reach until it is back.
var ErrGPUUnavailable = errors.New("the GPU is not available; reset it, or reboot")

// feature is something that a driver can be too old for.
type feature struct {
	name      string
	functions []string // of the library, that it takes
}

// lacking is the first function of a feature that the library does not have.
func (s *scanner) lacking(f feature) (function string, lacking bool) {
	at := slices.IndexFunc(f.functions, func(function string) bool { return !s.has(function) })
	if at < 0 {
		return "", false
	}
	return f.functions[at], true
}

// onGPU does something with a GPU's handle that takes a feature of the driver.
// Where the driver was reloaded in the meantime, it is done again with a new one.
func onGPU[T any](c *Client, uuid string, f feature, doing string, do func(nvml.Device) (T, error)) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	try := func() (result T, err error) {
		if err := c.initialise(); err != nil {
			return result, err
		}
		if function, lacking := (&scanner{api: c.library.api}).lacking(f); lacking {
			return result, fmt.Errorf("the NVIDIA driver is too old for %s, as it lacks %s: install a newer one", f.name, function)
		}
		handle, ret := c.handle(uuid)
		if ret == nvml.ERROR_NOT_FOUND {
			return result, fmt.Errorf("%w: %w", ErrGPUUnavailable, ret)
		}
		if ret != nvml.SUCCESS {
			return result, fmt.Errorf("looking for it: %w", ret)
		}
		return do(handle)
	}
	result, err := try()
	var ret nvml.Return
	if c.session != nil && errors.As(err, &ret) && endsSession(ret) {
		c.shutdown()
		if result, err = try(); errors.As(err, &ret) && endsSession(ret) {
			err = c.unavailable(doing, ret)
		}
	}
	if errors.Is(err, nvml.ERROR_GPU_IS_LOST) {
		err = fmt.Errorf("%w: %w", ErrGPUUnavailable, err)
	}
	if err != nil {
		return result, fmt.Errorf("GPU %s: %s: %w", uuid, doing, err)
	}
	return result, nil
}

func failure(ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return ret
}

// wholeGPU stands for a GPU where the number of a GPU instance could be.
const wholeGPU = -1

// explain says what is in the way of a change of a GPU or a GPU instance, and
// what to do about it.
func (c *Client) explain(handle nvml.Device, instance int, ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_IN_USE:
		users := c.users(handle, instance)
		if len(users) == 0 {
			return fmt.Errorf("%w: end what has it open, such as a monitoring agent (DCGM)", ret)
		}
		return fmt.Errorf("%w: %s; end what runs there", ret, strings.Join(users, ", "))
	case nvml.ERROR_INSUFFICIENT_RESOURCES:
		return fmt.Errorf("%w: other MIG instances have what it takes (nvidia-smi mig -lgi lists them)", ret)
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%w: it takes root with access to the driver's devices", ret)
	}
	return failure(ret)
}

// users are the processes on a GPU or in a GPU instance, as far as NVML tells,
// and not more of them than one can read.
func (c *Client) users(handle nvml.Device, instance int) (users []string) {
	const most = 5
	s := scanner{api: c.library.api}
	var all []nvml.ProcessInfo
	// The versions that tell the GPU instance.
	for symbol, list := range map[string]func() ([]nvml.ProcessInfo, nvml.Return){
		"nvmlDeviceGetComputeRunningProcesses_v3":  handle.GetComputeRunningProcesses,
		"nvmlDeviceGetGraphicsRunningProcesses_v3": handle.GetGraphicsRunningProcesses,
	} {
		if !s.has(symbol) {
			continue
		}
		if processes, ret := list(); ret == nvml.SUCCESS {
			all = append(all, processes...)
		}
	}
	if instance != wholeGPU {
		all = slices.DeleteFunc(all, func(p nvml.ProcessInfo) bool { return p.GpuInstanceId != uint32(instance) })
	}
	slices.SortFunc(all, func(a, b nvml.ProcessInfo) int { return cmp.Compare(a.Pid, b.Pid) })
	all = slices.CompactFunc(all, func(a, b nvml.ProcessInfo) bool { return a.Pid == b.Pid })
	for i, p := range all {
		if i == most {
			return append(users, fmt.Sprintf("%d more", len(all)-most))
		}
		user := fmt.Sprintf("process %d", p.Pid)
		if s.has("nvmlSystemGetProcessName") {
			if name, ret := c.library.api.SystemGetProcessName(int(p.Pid)); ret == nvml.SUCCESS {
				user += " (" + name + ")"
			}
		}
		users = append(users, user)
	}
	return users
}
