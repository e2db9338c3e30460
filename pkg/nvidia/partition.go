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
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/pkg/gpu"
)

// MIGEnabled tells whether the MIG mode of a GPU is in force.
func (c *Client) MIGEnabled(_ context.Context, uuid string) (bool, error) {
	return onGPU(c, uuid, featureMIG, "reading its MIG mode", func(handle nvml.Device) (bool, error) {
		current, _, ret := handle.GetMigMode()
		return current == nvml.DEVICE_MIG_ENABLE, failure(ret)
	})
}

// SetMIGMode turns the MIG mode of a GPU on or off. It is in force when the
// error is nil. The GPU's minor number may be another then.
func (c *Client) SetMIGMode(_ context.Context, uuid string, on bool) error {
	mode, doing := nvml.DEVICE_MIG_DISABLE, "turning its MIG mode off"
	if on {
		mode, doing = nvml.DEVICE_MIG_ENABLE, "turning its MIG mode on"
	}
	_, err := onGPU(c, uuid, featureMIG, doing, func(handle nvml.Device) (none struct{}, err error) {
		activation, ret := handle.SetMigMode(mode)
		switch {
		case ret != nvml.SUCCESS:
			return none, c.explain(handle, wholeGPU, ret)
		case activation == nvml.ERROR_RESET_REQUIRED:
			return none, fmt.Errorf("%w: run nvidia-smi --gpu-reset -i %s, or reboot", activation, uuid)
		case activation != nvml.SUCCESS:
			return none, c.explain(handle, wholeGPU, activation)
		}
		current, _, ret := handle.GetMigMode()
		if ret == nvml.SUCCESS && current != mode {
			return none, fmt.Errorf("the driver keeps it for the next reset: run nvidia-smi --gpu-reset -i %s, or reboot", uuid)
		}
		return none, failure(ret)
	})
	return err
}

// Instances are the MIG instances of a GPU, whoever made them. There are none
// outside MIG mode.
func (c *Client) Instances(_ context.Context, uuid string) ([]gpu.Instance, error) {
	return onGPU(c, uuid, featureMIG, "listing its MIG instances", func(handle nvml.Device) ([]gpu.Instance, error) {
		current, _, ret := handle.GetMigMode()
		if ret != nvml.SUCCESS || current != nvml.DEVICE_MIG_ENABLE {
			return nil, failure(ret)
		}
		profiles, err := c.profiles(handle)
		if err != nil {
			return nil, err
		}
		all, ret := instances(handle, profiles)
		return all, failure(ret)
	})
}

// profiles are those of one GPU, all of them: the instances of one that is
// missing would be taken for destroyed.
func (c *Client) profiles(handle nvml.Device) ([]gpu.Profile, error) {
	memory := (&target{scanner: &scanner{api: c.library.api}}).memory(handle)
	t := target{scanner: &scanner{api: c.library.api}}
	profiles := t.profiles(handle, memory)
	for _, p := range t.problems {
		return nil, fmt.Errorf("reading its MIG profiles: %s: %w", p.Query, p.Err)
	}
	return profiles, nil
}

// CreateInstance makes a GPU instance at a place, and in it a compute instance
// that has all of it. Nothing is left of either after an error, unless the error
// says so.
func (c *Client) CreateInstance(_ context.Context, uuid string, p gpu.Partition) (gpu.Instance, error) {
	doing := fmt.Sprintf("making MIG instance %s at memory slice %d", p.Profile, p.Start)
	return onGPU(c, uuid, featureMIG, doing, func(handle nvml.Device) (gpu.Instance, error) {
		profiles, err := c.profiles(handle)
		if err != nil {
			return gpu.Instance{}, err
		}
		at := slices.IndexFunc(profiles, func(q gpu.Profile) bool {
			return q.Name == p.Profile && q.MemorySlices == p.Size && slices.Contains(q.Starts, p.Start)
		})
		if at < 0 {
			return gpu.Instance{}, fmt.Errorf("it has no such profile of %d memory slices at that place; nvidia-smi mig -i %s -lgipp lists what it has", p.Size, uuid)
		}
		gi, ret := handle.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: uint32(profiles[at].ID)},
			&nvml.GpuInstancePlacement{Start: uint32(p.Start), Size: uint32(p.Size)})
		if ret != nvml.SUCCESS {
			return gpu.Instance{}, c.explain(handle, wholeGPU, ret)
		}
		instance, err := c.fill(handle, gi, profiles)
		if err != nil {
			if undone := c.destroy(handle, gi); undone != nil {
				err = fmt.Errorf("%w; and removing what was made: %w", err, undone)
			}
			return gpu.Instance{}, err
		}
		return instance, nil
	})
}

// fill makes the compute instance of a new GPU instance.
func (c *Client) fill(handle nvml.Device, gi nvml.GpuInstance, profiles []gpu.Profile) (gpu.Instance, error) {
	info, ret := gi.GetInfo()
	if ret != nvml.SUCCESS {
		return gpu.Instance{}, failure(ret)
	}
	at := slices.IndexFunc(profiles, func(p gpu.Profile) bool { return p.ID == int(info.ProfileId) })
	if at < 0 {
		return gpu.Instance{}, fmt.Errorf("GPU instance %d has the unknown profile %d", info.Id, info.ProfileId)
	}
	whole, ret := computeProfile(gi, profiles[at].ComputeSlices)
	if ret != nvml.SUCCESS {
		return gpu.Instance{}, fmt.Errorf("looking for the compute instance profile of %d slices: %w", profiles[at].ComputeSlices, ret)
	}
	if _, ret := gi.CreateComputeInstance(&whole); ret != nvml.SUCCESS {
		return gpu.Instance{}, fmt.Errorf("its compute instance: %w", c.explain(handle, int(info.Id), ret))
	}
	all, ret := instances(handle, profiles)
	if ret != nvml.SUCCESS {
		return gpu.Instance{}, failure(ret)
	}
	for _, i := range all {
		if i.GPUInstance == int(info.Id) && i.UUID != "" {
			return i, nil
		}
	}
	return gpu.Instance{}, fmt.Errorf("GPU instance %d has no MIG device after its compute instance was made", info.Id)
}

// computeProfile is that of all compute slices of a GPU instance.
func computeProfile(gi nvml.GpuInstance, computeSlices int) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
	for slot := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gi.GetComputeInstanceProfileInfo(slot, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		switch {
		case ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT:
		case ret != nvml.SUCCESS:
			return info, ret
		case int(info.SliceCount) == computeSlices:
			return info, ret
		}
	}
	return nvml.ComputeInstanceProfileInfo{}, nvml.ERROR_NOT_FOUND
}

// DestroyInstance destroys a GPU instance with the compute instances in it. One
// that is gone already is no error.
func (c *Client) DestroyInstance(_ context.Context, uuid string, gpuInstance int) error {
	_, err := onGPU(c, uuid, featureMIG, fmt.Sprintf("destroying MIG instance %d", gpuInstance), func(handle nvml.Device) (none struct{}, err error) {
		gi, ret := handle.GetGpuInstanceById(gpuInstance)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_NOT_SUPPORTED {
			return none, nil // not there, or not even in MIG mode
		}
		if ret != nvml.SUCCESS {
			return none, failure(ret)
		}
		return none, c.destroy(handle, gi)
	})
	return err
}

// destroy destroys a GPU instance with what is in it.
func (c *Client) destroy(handle nvml.Device, gi nvml.GpuInstance) error {
	info, ret := gi.GetInfo()
	if ret == nvml.ERROR_NOT_FOUND {
		return nil
	}
	if ret != nvml.SUCCESS {
		return failure(ret)
	}
	made, ret := computeInstances(gi)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("listing its compute instances: %w", ret)
	}
	for _, ci := range made {
		if ret := ci.Destroy(); ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
			return fmt.Errorf("its compute instance: %w", c.explain(handle, int(info.Id), ret))
		}
	}
	if ret := gi.Destroy(); ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
		return c.explain(handle, int(info.Id), ret)
	}
	return nil
}

// computeInstances are all those of a GPU instance.
func computeInstances(gi nvml.GpuInstance) (all []nvml.ComputeInstance, ret nvml.Return) {
	for slot := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gi.GetComputeInstanceProfileInfo(slot, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		switch {
		case ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT || ret == nvml.SUCCESS && info.InstanceCount == 0:
			continue
		case ret != nvml.SUCCESS:
			return nil, ret
		}
		made, ret := gi.GetComputeInstances(&info)
		if ret != nvml.SUCCESS {
			return nil, ret
		}
		all = append(all, made...)
	}
	return all, nvml.SUCCESS
}
