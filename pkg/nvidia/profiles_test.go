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
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/pkg/gpu"
)

// Where the driver does not tell a profile's name, it is the same all the same.
func TestProfileName(t *testing.T) {
	for _, key := range catalog.ModelKeys() {
		model, err := catalog.Lookup(key)
		if err != nil {
			t.Fatal(err)
		}
		if model.MIG == nil {
			continue
		}
		for _, p := range model.MIG.Profiles {
			t.Run(key+"/"+p.Name, func(t *testing.T) {
				info := nvml.GpuInstanceProfileInfo_v3{SliceCount: uint32(p.ComputeSlices), MemorySizeMB: p.MemoryMiB}
				memory := &gpu.Memory{Total: model.MemoryBytes}
				if got := profileName(p.Slot, info, memory); got != p.Name {
					t.Errorf("made up %q", got)
				}
				for i, c := range "MIG 9g.99gb+x" {
					info.Name[i] = int8(c)
				}
				if got := profileName(p.Slot, info, memory); got != "9g.99gb+x" {
					t.Errorf("got %q although the driver told another", got)
				}
			})
		}
	}
}

func TestProfileNameOfSlots(t *testing.T) {
	info := nvml.GpuInstanceProfileInfo_v3{SliceCount: 1, MemorySizeMB: 23 << 10}
	for slot, want := range map[int]string{
		nvml.GPU_INSTANCE_PROFILE_1_SLICE:        "1g.23gb",
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1:   "1g.23gb+me",
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX:    "1g.23gb+gfx",
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME:  "1g.23gb-me",
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "1g.23gb+me.all",
	} {
		if got := profileName(slot, info, nil); got != want {
			t.Errorf("slot %d of a GPU whose memory is unknown: got %q, want %q", slot, got, want)
		}
	}
}

func TestFirstAnswer(t *testing.T) {
	const none = nvml.ERROR_NOT_SUPPORTED
	for name, tc := range map[string]struct {
		returns []nvml.Return
		want    int // the version that answers
	}{
		"the newest":                     {[]nvml.Return{nvml.SUCCESS, nvml.SUCCESS, nvml.SUCCESS}, 0},
		"a version that is said unknown": {[]nvml.Return{nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.SUCCESS, nvml.SUCCESS}, 1},
		"a version that is said invalid": {[]nvml.Return{nvml.ERROR_INVALID_ARGUMENT, nvml.SUCCESS, nvml.SUCCESS}, 1},
		"a version that takes MIG mode":  {[]nvml.Return{none, none, nvml.SUCCESS}, 2},
		"the end of the slots":           {[]nvml.Return{nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_INVALID_ARGUMENT}, 2},
		"a failure is not asked away":    {[]nvml.Return{nvml.ERROR_UNKNOWN, nvml.SUCCESS, nvml.SUCCESS}, 0},
		"a slot that the GPU lacks":      {[]nvml.Return{none, none, none}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var versions []func() (int, nvml.Return)
			for version, ret := range tc.returns {
				versions = append(versions, func() (int, nvml.Return) { return version, ret })
			}
			if got, ret := firstAnswer(versions...); got != tc.want || ret != tc.returns[tc.want] {
				t.Errorf("got the answer %v of version %d, want that of %d", ret, got, tc.want)
			}
		})
	}
}
