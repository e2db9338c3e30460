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

// Package gonvml reads MIG geometries from go-nvml's own definitions of GPUs,
// which its mocks answer from, so that what is shown on the catalog can be
// shown on them too. They differ from the real parts; the catalog's tests say
// where.
package gonvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
)

// Configs are the definitions, by the catalog's key of the same model.
func Configs() map[string]gpus.Config {
	return map[string]gpus.Config{
		"a30":             gpus.A30_PCIE_24GB,
		"a100-sxm4-40gb":  gpus.A100_SXM4_40GB,
		"a100-sxm4-80gb":  gpus.A100_SXM4_80GB,
		"h100-sxm5-80gb":  gpus.H100_SXM5_80GB,
		"h200-sxm5-141gb": gpus.H200_SXM5_141GB,
		"b200-sxm6-180gb": gpus.B200_SXM5_180GB,
	}
}

// Geometries are the definitions' geometries, by the catalog's key of the same
// model. Profiles are named as the catalog names them, because the definitions
// have no names.
func Geometries() (map[string]*catalog.Geometry, error) {
	all := map[string]*catalog.Geometry{}
	for key, config := range Configs() {
		model, err := catalog.Lookup(key)
		if err != nil {
			return nil, err
		}
		all[key] = geometry(config.MIGProfiles, model.MIG)
	}
	return all, nil
}

func geometry(theirs gpus.MIGProfileConfig, named *catalog.Geometry) *catalog.Geometry {
	g := &catalog.Geometry{}
	for slot := range catalog.ProfileSlots {
		info, ok := theirs.GpuInstanceProfiles[slot]
		if !ok {
			continue
		}
		p := profile(slot, info, theirs.GpuInstancePlacements[slot])
		if same, ok := named.BySlot(slot); ok {
			p.Name = same.Name
		}
		g.Profiles = append(g.Profiles, p)
		g.ComputeSlices = max(g.ComputeSlices, p.ComputeSlices)
		for _, start := range p.Starts {
			g.MemorySlices = max(g.MemorySlices, start+p.MemorySlices)
		}
	}
	return g
}

func profile(slot int, info nvml.GpuInstanceProfileInfo, placements []nvml.GpuInstancePlacement) catalog.Profile {
	p := catalog.Profile{
		Slot: slot, ID: int(info.Id), ComputeSlices: int(info.SliceCount), Instances: int(info.InstanceCount),
		Multiprocessors: int(info.MultiprocessorCount), MemoryMiB: info.MemorySizeMB,
		Engines: catalog.Engines{
			Copy: int(info.CopyEngineCount), Decoders: int(info.DecoderCount), Encoders: int(info.EncoderCount),
			JPEG: int(info.JpegCount), OFA: int(info.OfaCount),
		},
	}
	for _, placement := range placements {
		p.MemorySlices = int(placement.Size)
		p.Starts = append(p.Starts, int(placement.Start))
	}
	return p
}
