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
	"math"
	"slices"
	"testing"
)

// coresPerMultiprocessor is a property of each compute capability.
var coresPerMultiprocessor = map[string]int{"7.5": 64, "8.0": 64, "8.6": 128, "8.9": 128, "9.0": 128, "10.0": 128}

func TestModels(t *testing.T) {
	for _, key := range ModelKeys() {
		t.Run(key, func(t *testing.T) {
			m, err := Lookup(key)
			if err != nil {
				t.Fatal(err)
			}
			capability := fmt.Sprintf("%d.%d", m.ComputeMajor, m.ComputeMinor)
			if per := coresPerMultiprocessor[capability]; m.Cores != per*m.Multiprocessors {
				t.Errorf("%d cores on %d multiprocessors, want %d on each with capability %s", m.Cores, m.Multiprocessors, per, capability)
			}
			if m.ReservedBytes == 0 || m.ReservedBytes > m.MemoryBytes/20 {
				t.Errorf("%d of %d bytes reserved", m.ReservedBytes, m.MemoryBytes)
			}
			if m.PCIDevice&0xffff != 0x10de || m.PCISubsystem&0xffff != 0x10de {
				t.Errorf("PCI ids %08x and %08x are not NVIDIA's", m.PCIDevice, m.PCISubsystem)
			}
			if m.MIG != nil {
				checkGeometry(t, m)
			}
		})
	}
}

// checkGeometry checks what must be true of any geometry.
func checkGeometry(t *testing.T, m *Model) {
	ids := map[int]bool{}
	for _, p := range m.MIG.Profiles {
		if ids[p.ID] {
			t.Errorf("two profiles have id %d", p.ID)
		}
		ids[p.ID] = true
		if found, ok := m.MIG.ByID(p.ID); !ok || found.Slot != p.Slot {
			t.Errorf("ByID(%d) = %+v", p.ID, found)
		}
		for _, start := range p.Starts {
			if start < 0 || start+p.MemorySlices > m.MIG.MemorySlices {
				t.Errorf("%s at %d leaves the GPU's %d memory slices", p.Name, start, m.MIG.MemorySlices)
			}
		}
		if p.Instances > len(p.Starts) || p.Instances*p.MemorySlices > m.MIG.MemorySlices ||
			p.Instances*p.ComputeSlices > m.MIG.ComputeSlices {
			t.Errorf("%d instances of %s do not fit", p.Instances, p.Name)
		}
		if p.Multiprocessors > m.Multiprocessors || p.MemoryMiB*MiB > m.MemoryBytes {
			t.Errorf("%s has more than the GPU", p.Name)
		}
		if got := profileName(m, p); got != p.Name {
			t.Errorf("%s is called %s by the rule that tools follow", p.Name, got)
		}
	}
}

// profileName is the rule by which NVIDIA's tools name a profile: its memory
// in eighths of the GPU, times the GPU's size in whole GiB.
func profileName(m *Model, p Profile) string {
	gib := math.Ceil(float64(m.MemoryBytes) / float64(1024*MiB))
	eighths := math.Ceil(float64(p.MemoryMiB*MiB) / float64(m.MemoryBytes) * 8)
	name := fmt.Sprintf("%dg.%.0fgb", p.ComputeSlices, math.Round(eighths/8*gib))
	if p.Slot == Slot1SliceRev1 || p.Slot == Slot2SliceRev1 {
		name += "+me"
	}
	return name
}

func TestPresets(t *testing.T) {
	for _, name := range PresetNames() {
		t.Run(name, func(t *testing.T) {
			p, err := LookupPreset(name)
			if err != nil {
				t.Fatal(err)
			}
			buses := map[string]bool{}
			for slot := range MaxGPUs {
				if _, err := Lookup(p.Model(slot)); err != nil {
					t.Error(err)
				}
				position := p.Position(slot)
				if buses[position.BusID] || position.NUMANode < 0 || position.NUMANode > 1 {
					t.Errorf("slot %d is at %+v", slot, position)
				}
				buses[position.BusID] = true
			}
		})
	}
}

// Presets of one machine differ in their drivers alone.
func TestMachine(t *testing.T) {
	base, err := LookupPreset("h100x8")
	if err != nil {
		t.Fatal(err)
	}
	for name, driver := range map[string]Driver{"h100x8-r580": r580, "h100x8-r615": r615} {
		p, err := LookupPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Machine() != base.Name || !slices.Equal(p.Models, base.Models) || p.Position(7) != base.Position(7) || p.Driver != driver {
			t.Errorf("%s is %+v", name, p)
		}
	}
}

func TestGeneration(t *testing.T) {
	for version, want := range map[string]string{
		"580.95.05": "r580", "570.1": "r580", "614.99.99": "r580", "70.1": "r580",
		"615.43.02": "r615", "615": "r615", "700.10": "r615", "1000.1": "r615",
		"": "r580", "unknown": "r580",
	} {
		if got := (Driver{Version: version}).Generation(); got != want {
			t.Errorf("driver %q is of generation %s, want %s", version, got, want)
		}
	}
}

func TestMixedPreset(t *testing.T) {
	p, err := LookupPreset("mixed")
	if err != nil {
		t.Fatal(err)
	}
	architectures, sizes, has3090 := map[Architecture]bool{}, map[uint64]bool{}, 0
	for _, key := range p.Models {
		m, err := Lookup(key)
		if err != nil {
			t.Fatal(err)
		}
		architectures[m.Architecture], sizes[m.MemoryBytes] = true, true
		if m.Name == "NVIDIA GeForce RTX 3090" {
			has3090++
		}
	}
	if len(architectures) < 4 || len(sizes) != len(p.Models) || has3090 != 1 {
		t.Errorf("%d architectures, %d sizes of %d cards, %d RTX 3090", len(architectures), len(sizes), len(p.Models), has3090)
	}
}

func TestUnknownNames(t *testing.T) {
	if _, err := Lookup("voodoo2"); err == nil {
		t.Error("an unknown model was found")
	}
	if _, err := LookupPreset("voodoo2x2"); err == nil {
		t.Error("an unknown preset was found")
	}
}
