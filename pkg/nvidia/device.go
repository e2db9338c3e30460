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
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
)

// Minor is the GPU's minor number, which names its device node, /dev/nvidia
// and the number. It can be another after the driver was loaded again or a GPU
// was removed.
func (c *Client) Minor(uuid string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	minor, err := c.minor(uuid)
	var ret nvml.Return
	if c.session != nil && errors.As(err, &ret) && endsSession(ret) {
		c.shutdown()
		return c.minor(uuid)
	}
	return minor, err
}

func (c *Client) minor(uuid string) (int, error) {
	if err := c.initialise(); err != nil {
		return 0, err
	}
	handle, ret := c.handle(uuid)
	if ret != nvml.SUCCESS {
		return 0, fmt.Errorf("looking for GPU %s: nvmlDeviceGetHandleByUUID: %w", uuid, ret)
	}
	minor, ret := handle.GetMinorNumber()
	if ret != nvml.SUCCESS {
		return 0, fmt.Errorf("reading the minor number of GPU %s: nvmlDeviceGetMinorNumber: %w", uuid, ret)
	}
	return minor, nil
}

// handle prefers the one of the last scan where it still is that GPU's, as
// NVML can take seconds to find a GPU by UUID while the machine is busy.
func (c *Client) handle(uuid string) (nvml.Device, nvml.Return) {
	if handle, ok := c.session.handles[uuid]; ok {
		if now, ret := handle.GetUUID(); ret == nvml.SUCCESS && now == uuid {
			return handle, ret
		}
	}
	return c.library.api.DeviceGetHandleByUUID(uuid)
}

// CDIOption has NVIDIA's CDI library use the NVML that is loaded here, as one
// process cannot load two. It is good for one use: the driver may come and go.
func (c *Client) CDIOption() (nvcdi.Option, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := c.initialise(); err != nil {
		return nil, err
	}
	return nvcdi.WithNvmlLib(c.library.api), nil
}
