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
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/pkg/gpu"
)

const mebibyte = 1 << 20

// featureMIG has the functions that came to NVML with MIG and after it, and that
// are called without another look.
var featureMIG = feature{"MIG", []string{
	"nvmlDeviceGetMigMode", "nvmlDeviceSetMigMode",
	"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetAttributes_v2",
	"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
	"nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
	"nvmlDeviceGetGpuInstances", "nvmlDeviceGetGpuInstanceById", "nvmlDeviceCreateGpuInstanceWithPlacement",
	"nvmlGpuInstanceGetInfo", "nvmlGpuInstanceDestroy",
	"nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceGetComputeInstances",
	"nvmlGpuInstanceCreateComputeInstance", "nvmlComputeInstanceDestroy",
}}

// mig reads whether the GPU can be divided, what into, and what it is divided
// into at present.
func (t *target) mig(handle nvml.Device, g *gpu.GPU) {
	mode, ok := query(t, "nvmlDeviceGetMigMode", pair(handle.GetMigMode))
	if !ok {
		return
	}
	g.MIG = &gpu.MultiInstance{Enabled: mode[0] == nvml.DEVICE_MIG_ENABLE, Pending: mode[1] == nvml.DEVICE_MIG_ENABLE}
	if symbol, lacking := t.lacking(featureMIG); lacking {
		t.failed(symbol, nvml.ERROR_FUNCTION_NOT_FOUND, false)
		return
	}
	profiles := t.profiles(handle, g.Memory)
	if g.MIG.Enabled {
		var read bool
		g.MIG.Instances, read = query(t, "nvmlDeviceGetGpuInstances", func() ([]gpu.Instance, nvml.Return) {
			return instances(handle, profiles)
		})
		g.MIG.Unread = !read
	}
	g.MIG.Profiles = slices.DeleteFunc(profiles, func(p gpu.Profile) bool { return len(p.Starts) == 0 })
}

// profiles asks for each slot up to the last one that this NVML knows. A profile
// has no starts where NVML tells no placements.
func (t *target) profiles(handle nvml.Device, memory *gpu.Memory) []gpu.Profile {
	var profiles []gpu.Profile
	for slot := range maxSlots {
		info, ret := t.profileInfo(handle, slot)
		if ret == nvml.ERROR_INVALID_ARGUMENT {
			break
		}
		if ret != nvml.SUCCESS {
			if ret != nvml.ERROR_NOT_SUPPORTED {
				t.failed("nvmlDeviceGetGpuInstanceProfileInfo", ret, false)
			}
			continue
		}
		placements, _ := query(t, "nvmlDeviceGetGpuInstancePossiblePlacements_v2", func() ([]nvml.GpuInstancePlacement, nvml.Return) {
			return handle.GetGpuInstancePossiblePlacements(&nvml.GpuInstanceProfileInfo{Id: info.Id})
		})
		profiles = append(profiles, profile(info, profileName(slot, info, memory), placements))
	}
	return profiles
}

// maxSlots is beyond any that NVML has had so far, should one never say that a
// slot is invalid.
const maxSlots = 64

// profileInfo prefers the versions that tell the name.
func (t *target) profileInfo(handle nvml.Device, slot int) (nvml.GpuInstanceProfileInfo_v3, nvml.Return) {
	v1 := func() (nvml.GpuInstanceProfileInfo_v3, nvml.Return) {
		info, ret := handle.GetGpuInstanceProfileInfo(slot)
		return nvml.GpuInstanceProfileInfo_v3{
			Id: info.Id, SliceCount: info.SliceCount, InstanceCount: info.InstanceCount,
			MultiprocessorCount: info.MultiprocessorCount, CopyEngineCount: info.CopyEngineCount,
			DecoderCount: info.DecoderCount, EncoderCount: info.EncoderCount, JpegCount: info.JpegCount,
			OfaCount: info.OfaCount, MemorySizeMB: info.MemorySizeMB,
		}, ret
	}
	if !t.has("nvmlDeviceGetGpuInstanceProfileInfoV") {
		return v1()
	}
	versioned := handle.GetGpuInstanceProfileInfoV(slot)
	v2 := func() (nvml.GpuInstanceProfileInfo_v3, nvml.Return) {
		info, ret := versioned.V2()
		return nvml.GpuInstanceProfileInfo_v3{
			Id: info.Id, SliceCount: info.SliceCount, InstanceCount: info.InstanceCount,
			MultiprocessorCount: info.MultiprocessorCount, CopyEngineCount: info.CopyEngineCount,
			DecoderCount: info.DecoderCount, EncoderCount: info.EncoderCount, JpegCount: info.JpegCount,
			OfaCount: info.OfaCount, MemorySizeMB: info.MemorySizeMB, Name: info.Name,
		}, ret
	}
	return firstAnswer(versioned.V3, v2, v1)
}

// firstAnswer asks the versions of a question in turn. NVML has several words
// for a version that it does not know, all but one of which can also be about
// what is asked, so that the last version decides.
func firstAnswer[T any](versions ...func() (T, nvml.Return)) (answer T, ret nvml.Return) {
	for _, ask := range versions {
		answer, ret = ask()
		if ret != nvml.ERROR_ARGUMENT_VERSION_MISMATCH && ret != nvml.ERROR_INVALID_ARGUMENT && ret != nvml.ERROR_NOT_SUPPORTED {
			break
		}
	}
	return answer, ret
}

func profile(info nvml.GpuInstanceProfileInfo_v3, name string, placements []nvml.GpuInstancePlacement) gpu.Profile {
	p := gpu.Profile{
		Name:            name,
		ID:              int(info.Id),
		ComputeSlices:   int(info.SliceCount),
		Count:           int(info.InstanceCount),
		Memory:          int64(info.MemorySizeMB) * mebibyte,
		Multiprocessors: int(info.MultiprocessorCount),
		Engines: gpu.Engines{
			Copy: int(info.CopyEngineCount), Decoders: int(info.DecoderCount), Encoders: int(info.EncoderCount),
			JPEG: int(info.JpegCount), OFA: int(info.OfaCount),
		},
	}
	for _, placement := range placements {
		p.MemorySlices = int(placement.Size)
		p.Starts = append(p.Starts, int(placement.Start))
	}
	slices.Sort(p.Starts)
	return p
}

// profileName is nvidia-smi's, without the "MIG" in front. Where the driver does
// not tell it, it is made up in the same way.
func profileName(slot int, info nvml.GpuInstanceProfileInfo_v3, memory *gpu.Memory) string {
	var name strings.Builder
	for _, c := range info.Name {
		if c == 0 {
			break
		}
		name.WriteByte(byte(c))
	}
	if s := strings.TrimPrefix(name.String(), "MIG "); s != "" {
		return s
	}
	return fmt.Sprintf("%dg.%dgb%s", info.SliceCount, gigabytes(info.MemorySizeMB*mebibyte, memory), slotSuffixes[slot])
}

// gigabytes is a profile's memory as nvidia-smi counts it: in whole eighths of
// the GPU's.
func gigabytes(size uint64, memory *gpu.Memory) uint64 {
	const gibibyte = 1 << 30
	if memory == nil || memory.Total == 0 {
		return (size + gibibyte - 1) / gibibyte
	}
	eighths := (8*size + memory.Total - 1) / memory.Total
	total := (memory.Total + gibibyte - 1) / gibibyte
	return (eighths*total + 4) / 8
}

// slotSuffixes tell profiles of one size apart.
var slotSuffixes = map[int]string{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1:   "+me",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:   "+me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME:  "-me",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:  "-me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
}
