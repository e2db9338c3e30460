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

package state

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
)

// FormatVersion is the version of the document that this package writes.
const FormatVersion = 1

// State is the whole document.
type State struct {
	Version int    `json:"version"`
	Preset  string `json:"preset"`
	// Seed tells nodes of the same preset apart: GPU UUIDs derive from it.
	Seed   string `json:"seed,omitempty"`
	Driver Driver `json:"driver"`
	// GPUs are in PCI order, the ones that were removed included.
	GPUs []GPU `json:"gpus"`
	// Events are the latest that the hardware raised, oldest first.
	Events []Event `json:"events,omitempty"`
}

// Driver is the kernel driver.
type Driver struct {
	Version string `json:"version"`
	// CUDA is 1000*major + 10*minor.
	CUDA   int  `json:"cuda"`
	Loaded bool `json:"loaded"`
	// LibraryAbsent leaves libnvidia-ml.so.1 out of the driver root.
	LibraryAbsent bool `json:"libraryAbsent,omitempty"`
}

// GPU is one physical GPU.
type GPU struct {
	UUID     string `json:"uuid"`
	Serial   string `json:"serial"`
	Model    string `json:"model"`
	BusID    string `json:"pciBusID"`
	PCIeRoot string `json:"pcieRoot"`
	Bridge   string `json:"pciBridge"`
	NUMANode int    `json:"numaNode"`
	// Minor is the device node's number. It means nothing while the GPU is
	// removed.
	Minor int `json:"minor"`
	// Removed GPUs are not enumerated; handles to them are lost.
	Removed bool `json:"removed,omitempty"`
	// Lost GPUs are enumerated and fail every query, like one that has
	// fallen off the bus.
	Lost        bool        `json:"lost,omitempty"`
	MIG         MIGMode     `json:"mig"`
	ComputeMode ComputeMode `json:"computeMode"`
	// Instances are the MIG GPU instances, by ID.
	Instances []GPUInstance `json:"instances,omitempty"`
	Processes []Process     `json:"processes,omitempty"`
	// Limits are those of cgroups. Leaked is guaranteed to cgroups that are no
	// more, in bytes.
	Limits []Limit `json:"limits,omitempty"`
	Leaked uint64  `json:"leaked,omitempty"`
	// Failures are the queries that fail, with what.
	Failures map[Query]Result `json:"failures,omitempty"`
	// FailuresLeft is how often, for those that do not fail until they are
	// cleared.
	FailuresLeft map[Query]int `json:"failuresLeft,omitempty"`
}

// ComputeMode is an nvmlComputeMode_t value.
type ComputeMode uint32

// Event is something that an NVML event set can report.
type Event struct {
	// Sequence grows by one with every event of the node.
	Sequence uint64 `json:"sequence"`
	UUID     string `json:"uuid"`
	// XID is NVIDIA's error number.
	XID uint64 `json:"xid"`
}

// New is the document of a freshly booted node.
func New(preset *catalog.Preset, gpus int, seed string) (*State, error) {
	if gpus == 0 {
		gpus = len(preset.Models)
	}
	if gpus < 0 || gpus > catalog.MaxGPUs {
		return nil, fmt.Errorf("%d GPUs: a simulated node has 1 to %d", gpus, catalog.MaxGPUs)
	}
	s := &State{
		Version: FormatVersion,
		Preset:  preset.Name,
		Seed:    seed,
		Driver:  Driver{Version: preset.Driver.Version, CUDA: preset.Driver.CUDA, Loaded: true},
	}
	for slot := range gpus {
		position := preset.Position(slot)
		id := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", seed, preset.Machine(), slot))
		s.GPUs = append(s.GPUs, GPU{
			UUID:     formatUUID("GPU", [16]byte(id[:16])),
			Serial:   fmt.Sprintf("165%010d", (uint64(id[16])<<24 | uint64(id[17])<<16 | uint64(id[18])<<8 | uint64(id[19]))),
			Model:    preset.Model(slot),
			BusID:    position.BusID,
			PCIeRoot: position.PCIeRoot,
			Bridge:   position.Bridge,
			NUMANode: position.NUMANode,
		})
	}
	s.probe()
	return s, nil
}

// newUUID makes one that nothing else has.
func newUUID(prefix string) string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return formatUUID(prefix, id)
}

func formatUUID(prefix string, id [16]byte) string {
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", prefix, id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
}

// Present lists the GPUs that the driver enumerates, so that a GPU's place in
// the result is its NVML index.
func (s *State) Present() []*GPU {
	var present []*GPU
	for i := range s.GPUs {
		if !s.GPUs[i].Removed {
			present = append(present, &s.GPUs[i])
		}
	}
	return present
}

// Index is the NVML index of the GPU with the UUID. It is false for a GPU
// that does not exist or was removed.
func (s *State) Index(uuid string) (int, bool) {
	for i, gpu := range s.Present() {
		if gpu.UUID == uuid {
			return i, true
		}
	}
	return 0, false
}

// Find resolves what people call a GPU: its NVML index, its UUID or its PCI
// address. Removed GPUs have no index.
func (s *State) Find(name string) (*GPU, error) {
	present := s.Present()
	if index, err := strconv.Atoi(name); err == nil {
		if index < 0 || index >= len(present) {
			return nil, fmt.Errorf("no GPU has index %d: the node has %d GPUs, counted from 0", index, len(present))
		}
		return present[index], nil
	}
	for i := range s.GPUs {
		gpu := &s.GPUs[i]
		if gpu.UUID == name || SameBusID(gpu.BusID, name) {
			return gpu, nil
		}
	}
	return nil, fmt.Errorf("no GPU is called %q: give an index, a UUID or a PCI address as 'fakegpu state' shows them", name)
}

// SameBusID compares PCI addresses, whose domain is written with four digits
// by the kernel and with eight by NVML.
func SameBusID(a, b string) bool { return shortBusID(a) == shortBusID(b) }

func shortBusID(busID string) string {
	domain, rest, ok := strings.Cut(busID, ":")
	if ok && len(domain) == 8 {
		busID = domain[4:] + ":" + rest
	}
	return strings.ToLower(busID)
}

// probe hands out minor numbers, as loading the driver does.
func (s *State) probe() {
	for minor, gpu := range s.Present() {
		gpu.Minor = minor
	}
}
