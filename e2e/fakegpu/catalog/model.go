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

package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// Architecture is an NVML_DEVICE_ARCH_* value.
type Architecture uint32

// The architectures that the models below belong to.
const (
	Turing    Architecture = 6
	Ampere    Architecture = 7
	Ada       Architecture = 8
	Hopper    Architecture = 9
	Blackwell Architecture = 10
)

// Brand is an nvmlBrandType_t value.
type Brand uint32

// The brands that the models below report.
const (
	BrandGeForce Brand = 5
	BrandNVIDIA  Brand = 14
)

// MiB is the unit in which nvidia-smi prints memory.
const MiB = uint64(1) << 20

// Model is what every GPU of one product has in common.
type Model struct {
	// Key names the model in state files and commands, for example
	// "h100-sxm5-80gb".
	Key          string
	Name         string
	Architecture Architecture
	Brand        Brand
	// ComputeMajor and ComputeMinor are the CUDA compute capability.
	ComputeMajor, ComputeMinor int
	// MemoryBytes is NVML's total; ReservedBytes is the part of it that the
	// driver keeps.
	MemoryBytes, ReservedBytes uint64
	// Multiprocessors is the number of enabled SMs, Cores the number of CUDA
	// cores.
	Multiprocessors, Cores int
	// PCIDevice and PCISubsystem hold the device in the upper and the vendor
	// in the lower 16 bits, as nvmlPciInfo_t does.
	PCIDevice, PCISubsystem uint32
	// MIG is nil for a model that cannot be partitioned.
	MIG *Geometry
}

// Lookup finds a model by its key.
func Lookup(key string) (*Model, error) {
	i := slices.IndexFunc(models, func(m *Model) bool { return m.Key == key })
	if i < 0 {
		return nil, fmt.Errorf("unknown GPU model %q: use one of %s", key, strings.Join(ModelKeys(), ", "))
	}
	return models[i], nil
}

// ModelKeys lists the models in the catalog's order.
func ModelKeys() []string {
	keys := make([]string, len(models))
	for i, m := range models {
		keys[i] = m.Key
	}
	return keys
}

// models has one entry per product. Sources: NVIDIA's product briefs and CUDA
// GPU list for cores, SMs and capabilities; published `nvidia-smi -q` output
// of r550 to r580 drivers for names, PCI ids, total and reserved memory, which
// differ by some tens of MiB between drivers.
var models = []*Model{
	{
		Key: "t4", Name: "Tesla T4", Architecture: Turing, Brand: BrandNVIDIA,
		ComputeMajor: 7, ComputeMinor: 5,
		MemoryBytes: 15360 * MiB, ReservedBytes: 450 * MiB,
		Multiprocessors: 40, Cores: 2560,
		PCIDevice: 0x1EB810DE, PCISubsystem: 0x12A210DE,
	},
	{
		Key: "a30", Name: "NVIDIA A30", Architecture: Ampere, Brand: BrandNVIDIA,
		ComputeMajor: 8, ComputeMinor: 0,
		MemoryBytes: 24576 * MiB, ReservedBytes: 446 * MiB,
		Multiprocessors: 56, Cores: 3584,
		PCIDevice: 0x20B710DE, PCISubsystem: 0x153210DE,
		MIG: a30MIG,
	},
	{
		Key: "a100-sxm4-40gb", Name: "NVIDIA A100-SXM4-40GB", Architecture: Ampere, Brand: BrandNVIDIA,
		ComputeMajor: 8, ComputeMinor: 0,
		MemoryBytes: 40960 * MiB, ReservedBytes: 620 * MiB,
		Multiprocessors: 108, Cores: 6912,
		PCIDevice: 0x20B010DE, PCISubsystem: 0x134F10DE,
		MIG: a100MIG40,
	},
	{
		Key: "a100-sxm4-80gb", Name: "NVIDIA A100-SXM4-80GB", Architecture: Ampere, Brand: BrandNVIDIA,
		ComputeMajor: 8, ComputeMinor: 0,
		MemoryBytes: 81920 * MiB, ReservedBytes: 869 * MiB,
		Multiprocessors: 108, Cores: 6912,
		PCIDevice: 0x20B210DE, PCISubsystem: 0x146310DE,
		MIG: a100MIG80,
	},
	{
		Key: "rtx3090", Name: "NVIDIA GeForce RTX 3090", Architecture: Ampere, Brand: BrandGeForce,
		ComputeMajor: 8, ComputeMinor: 6,
		MemoryBytes: 24576 * MiB, ReservedBytes: 318 * MiB,
		Multiprocessors: 82, Cores: 10496,
		PCIDevice: 0x220410DE, PCISubsystem: 0x147D10DE,
	},
	{
		Key: "l4", Name: "NVIDIA L4", Architecture: Ada, Brand: BrandNVIDIA,
		ComputeMajor: 8, ComputeMinor: 9,
		MemoryBytes: 23034 * MiB, ReservedBytes: 471 * MiB,
		Multiprocessors: 58, Cores: 7424,
		PCIDevice: 0x27B810DE, PCISubsystem: 0x16CA10DE,
	},
	{
		Key: "rtx4090", Name: "NVIDIA GeForce RTX 4090", Architecture: Ada, Brand: BrandGeForce,
		ComputeMajor: 8, ComputeMinor: 9,
		MemoryBytes: 24564 * MiB, ReservedBytes: 482 * MiB,
		Multiprocessors: 128, Cores: 16384,
		PCIDevice: 0x268410DE, PCISubsystem: 0x167C10DE,
	},
	{
		Key: "h100-sxm5-80gb", Name: "NVIDIA H100 80GB HBM3", Architecture: Hopper, Brand: BrandNVIDIA,
		ComputeMajor: 9, ComputeMinor: 0,
		MemoryBytes: 81559 * MiB, ReservedBytes: 516 * MiB,
		Multiprocessors: 132, Cores: 16896,
		PCIDevice: 0x233010DE, PCISubsystem: 0x16C110DE,
		MIG: h100MIG,
	},
	{
		Key: "h200-sxm5-141gb", Name: "NVIDIA H200", Architecture: Hopper, Brand: BrandNVIDIA,
		ComputeMajor: 9, ComputeMinor: 0,
		MemoryBytes: 143771 * MiB, ReservedBytes: 700 * MiB,
		Multiprocessors: 132, Cores: 16896,
		PCIDevice: 0x233510DE, PCISubsystem: 0x18BE10DE,
		MIG: h200MIG,
	},
	{
		Key: "b200-sxm6-180gb", Name: "NVIDIA B200", Architecture: Blackwell, Brand: BrandNVIDIA,
		ComputeMajor: 10, ComputeMinor: 0,
		MemoryBytes: 183359 * MiB, ReservedBytes: 740 * MiB,
		Multiprocessors: 148, Cores: 18944,
		PCIDevice: 0x290110DE, PCISubsystem: 0x199910DE,
		MIG: b200MIG,
	},
}
