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

package gpu

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

// GPU is one physical GPU as its driver describes it. A field that the driver
// could not answer has its zero value, and what depends on it is not published.
type GPU struct {
	// UUID is NVML's identifier, "GPU-" and a UUID. It never changes, unlike
	// the index and the minor number, so it is the only key used anywhere.
	UUID string

	ProductName  string // "NVIDIA H100 80GB HBM3"
	Brand        string // as nvidia-smi prints it: "NVIDIA", "GeForce", "Tesla"
	Architecture string // as nvidia-smi prints it: "Hopper", "Ada Lovelace"

	CUDAComputeCapability string // "9.0"
	CUDADriverVersion     string // "13.0"
	DriverVersion         string // as NVML spells it: "580.105.08"

	// Memory is nil where the GPU has no memory of its own to report, as the
	// unified-memory parts do not.
	Memory *Memory

	// Multiprocessors is the number of streaming multiprocessors.
	Multiprocessors int

	// PCIBusID is domain:bus:device.function as sysfs spells it,
	// "0000:1b:00.0".
	PCIBusID string

	// PCIeRoot is the root complex as sysfs names it, "pci0000:00".
	PCIeRoot string
	// NUMANode is nil where the firmware does not tell.
	NUMANode *int64

	// MemoryLimits tells that the driver can limit the memory that a cgroup has
	// of this GPU. It was tried.
	MemoryLimits bool

	// MIG is nil for a GPU that cannot be divided into MIG instances.
	MIG *MultiInstance
}

// Memory is the frame buffer of a GPU, in bytes.
type Memory struct {
	Total    uint64
	Reserved uint64 // held by the driver and firmware; no process can have it
}

// Usable is the number of bytes that processes can have in all.
func (m Memory) Usable() uint64 {
	if m.Reserved > m.Total {
		return 0
	}
	return m.Total - m.Reserved
}

// ID is a short name for the GPU, fit for a DNS label: the first twelve digits
// of its UUID, which "nvidia-smi -L" shows too ("1f5e9c0a-77b2").
func (g *GPU) ID() string {
	if m := uuidPattern.FindStringSubmatch(g.UUID); m != nil {
		return m[1]
	}
	sum := sha256.Sum256([]byte(g.UUID))
	return hex.EncodeToString(sum[:6])
}

var uuidPattern = regexp.MustCompile(`^GPU-([0-9a-f]{8}-[0-9a-f]{4})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
