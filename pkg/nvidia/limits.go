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
	"context"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/gpu"
)

// featureLimits came with R615 (NVML 13.4).
var featureLimits = feature{"limits of a cgroup's GPU memory", []string{"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"}}

// noGuarantee is the soft limit of every cgroup. Shares are accounted, so that
// none needs a guarantee, and one that is not taken back before its cgroup goes
// stays behind.
const noGuarantee = 0

// SetMemoryLimit limits what the processes of a cgroup, and of those below it,
// can have of a GPU's memory, in bytes. cgroup is the path of its directory.
func (c *Client) SetMemoryLimit(ctx context.Context, uuid, cgroup string, bytes uint64) error {
	doing := fmt.Sprintf("limiting cgroup %s to %d bytes of its memory", cgroup, bytes)
	_, err := onGPU(c, uuid, featureLimits, doing, func(handle nvml.Device) (none struct{}, err error) {
		return none, failure(handle.SetMemoryLimits_v1(cgroup, noGuarantee, bytes))
	})
	if err != nil {
		return err
	}
	klog.FromContext(ctx).V(4).Info("Limited the GPU memory of a cgroup", "gpu", uuid, "cgroup", cgroup, "bytes", bytes)
	return nil
}

// MemoryLimit reads back the limit of a cgroup on a GPU, in bytes. found is false
// where it has none.
func (c *Client) MemoryLimit(_ context.Context, uuid, cgroup string) (bytes uint64, found bool, err error) {
	bytes, err = onGPU(c, uuid, featureLimits, fmt.Sprintf("reading the limit of cgroup %s", cgroup), func(handle nvml.Device) (uint64, error) {
		return memoryLimit(handle, cgroup)
	})
	return bytes, err == nil && bytes != unlimited, err
}

// unlimited is the hard limit that is none.
const unlimited = nvml.DEVICE_MEMORY_LIMIT_MAX

func memoryLimit(handle nvml.Device, cgroup string) (uint64, error) {
	limits, ret := handle.GetMemoryLimits_v1(cgroup)
	if ret == nvml.ERROR_NOT_FOUND {
		return unlimited, nil
	}
	return limits.HardLimit, failure(ret)
}

// limits finds out whether the driver can limit a cgroup's memory, by doing so:
// that the library has the function does not say that the GPU supports it, nor
// that this process may. A GPU in MIG mode cannot be tried.
func (t *target) limits(handle nvml.Device, g *gpu.GPU) {
	if done, ok := t.tried[g.UUID]; ok {
		g.MemoryLimits = done
		return
	}
	if _, lacking := t.lacking(featureLimits); lacking || t.lost || t.cgroup == nil || g.Memory == nil || g.MIG != nil && g.MIG.Enabled {
		return
	}
	err := t.try(handle, g)
	if ret := nvml.SUCCESS; errors.As(err, &ret) && (endsSession(ret) || ret == nvml.ERROR_GPU_IS_LOST) {
		t.failed("nvmlDeviceSetMemoryLimits_v1", ret, false)
		return
	}
	g.MemoryLimits = err == nil
	if err == nil || errors.Is(err, nvml.ERROR_NOT_SUPPORTED) {
		t.tried[g.UUID] = g.MemoryLimits
		return
	}
	// It is tried again the next time, and may have a cause that goes.
	t.problem("nvmlDeviceSetMemoryLimits_v1", fmt.Errorf("the memory of shares cannot be enforced by cgroup: %w", err), false)
}

// try limits this process' own cgroup to all there is, which changes nothing.
func (t *target) try(handle nvml.Device, g *gpu.GPU) (err error) {
	cgroup, err := t.cgroup()
	if err != nil {
		return err
	}
	if ret := handle.SetMemoryLimits_v1(cgroup, noGuarantee, g.Memory.Total); ret != nvml.SUCCESS {
		return fmt.Errorf("limiting cgroup %s: %w", cgroup, ret)
	}
	defer func() {
		if ret := handle.SetMemoryLimits_v1(cgroup, noGuarantee, unlimited); ret != nvml.SUCCESS {
			err = errors.Join(err, fmt.Errorf("taking the limit of cgroup %s back: %w", cgroup, ret))
		}
	}()
	limit, err := memoryLimit(handle, cgroup)
	if err == nil && limit != g.Memory.Total {
		err = fmt.Errorf("cgroup %s was limited to %d bytes, and the driver says %d", cgroup, g.Memory.Total, limit)
	}
	return err
}
