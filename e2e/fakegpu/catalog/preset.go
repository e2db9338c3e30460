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
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Driver is the version information of one driver release.
type Driver struct {
	// Version is the kernel driver's, for example "580.95.05".
	Version string
	// CUDA is 1000*major + 10*minor, as nvmlSystemGetCudaDriverVersion_v2
	// returns it.
	CUDA int
}

// Generation is the release with which drivers of this kind began, as the
// simulated libraries are named: r580, or r615, which limits cgroups.
func (d Driver) Generation() string {
	major, _, _ := strings.Cut(d.Version, ".")
	if release, err := strconv.Atoi(major); err == nil && release >= 615 {
		return "r615"
	}
	return "r580"
}

// Position is where a GPU sits in the machine.
type Position struct {
	// BusID is the PCI address as sysfs spells it.
	BusID string
	// PCIeRoot is the root complex, Bridge the root port above the GPU.
	PCIeRoot, Bridge string
	NUMANode         int
}

// Preset is a simulated node: a driver and a model per slot.
type Preset struct {
	Name, Description string
	Driver            Driver
	// Models has one key per slot, in PCI order.
	Models  []string
	chassis chassis
	// machine is the preset whose GPUs these are, with another driver.
	machine string
}

// Machine names the GPUs: presets of one machine have the same, and differ in
// their drivers.
func (p *Preset) Machine() string { return cmp.Or(p.machine, p.Name) }

// MaxGPUs is how many slots a node can have.
const MaxGPUs = 16

// LookupPreset finds a preset by name.
func LookupPreset(name string) (*Preset, error) {
	i := slices.IndexFunc(presets, func(p *Preset) bool { return p.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("unknown preset %q: use one of %s", name, strings.Join(PresetNames(), ", "))
	}
	return presets[i], nil
}

// PresetNames lists the presets in the catalog's order.
func PresetNames() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.Name
	}
	return names
}

// Model returns the model of a slot. Slots beyond the preset's own repeat it
// from the start.
func (p *Preset) Model(slot int) string { return p.Models[slot%len(p.Models)] }

// Position returns where the GPU of a slot sits.
func (p *Preset) Position(slot int) Position { return p.chassis.position(slot) }

// chassis is the buses of a machine's GPU slots, half of them on each of two
// NUMA nodes.
type chassis []byte

var (
	// The buses of DGX A100 and DGX H100/H200/B200 systems.
	dgxA100 = chassis{0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd}
	dgxH100 = chassis{0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf}
	// A two-socket server with PCIe cards.
	server = chassis{0x01, 0x25, 0x41, 0x61, 0x81, 0xa1, 0xc1, 0xe1}
)

func (c chassis) position(slot int) Position {
	// A second row of slots keeps its distance from the first, so that
	// addresses stay unique.
	bus := int(c[slot%len(c)]) + 2*(slot/len(c))
	return Position{
		BusID:    fmt.Sprintf("0000:%02x:00.0", bus),
		PCIeRoot: fmt.Sprintf("pci0000:%02x", bus-1),
		Bridge:   fmt.Sprintf("0000:%02x:01.0", bus-1),
		NUMANode: (slot % len(c)) / (len(c) / 2),
	}
}

var (
	r580 = Driver{Version: "580.95.05", CUDA: 13000}
	r615 = Driver{Version: "615.43.02", CUDA: 13040}
)

var presets = []*Preset{
	{Name: "h100x8", Description: "DGX H100: eight H100 SXM5 80GB", Driver: r580,
		Models: repeat("h100-sxm5-80gb", 8), chassis: dgxH100},
	{Name: "h100x8-r580", Description: "the same, with a driver that limits no cgroups", Driver: r580,
		Models: repeat("h100-sxm5-80gb", 8), chassis: dgxH100, machine: "h100x8"},
	{Name: "h100x8-r615", Description: "the same, with a driver that limits the memory of cgroups", Driver: r615,
		Models: repeat("h100-sxm5-80gb", 8), chassis: dgxH100, machine: "h100x8"},
	{Name: "a100x8", Description: "DGX A100: eight A100 SXM4 80GB", Driver: r580,
		Models: repeat("a100-sxm4-80gb", 8), chassis: dgxA100},
	{Name: "b200x8", Description: "DGX B200: eight B200 180GB", Driver: r580,
		Models: repeat("b200-sxm6-180gb", 8), chassis: dgxH100},
	{Name: "t4", Description: "one T4 16GB", Driver: r580,
		Models: repeat("t4", 1), chassis: server},
	{Name: "rtx4090x2", Description: "two GeForce RTX 4090 24GB", Driver: r580,
		Models: repeat("rtx4090", 2), chassis: server},
	{Name: "mixed", Description: "one each of H100 80GB, A100 40GB, L4, T4, RTX 3090, RTX 4090", Driver: r580,
		Models:  []string{"h100-sxm5-80gb", "a100-sxm4-40gb", "l4", "t4", "rtx3090", "rtx4090"},
		chassis: server},
	{Name: "mig", Description: "one each of the GPUs with MIG: A30, A100 40GB and 80GB, H100, H200, B200", Driver: r580,
		Models:  []string{"a30", "a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "h200-sxm5-141gb", "b200-sxm6-180gb"},
		chassis: server},
}

func repeat(model string, count int) []string { return slices.Repeat([]string{model}, count) }
