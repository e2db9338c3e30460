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
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/memslice/memslice/pkg/gpu"
)

// machine is a DGX H100 on NVML's own mock, with what that leaves out.
type machine struct {
	*server.Server
	root    string // of the driver
	sysfs   fstest.MapFS
	lacking []string // functions that the library does not have
}

func newMachine(t *testing.T) *machine {
	m := &machine{Server: dgxh100.New(), root: t.TempDir(), sysfs: fstest.MapFS{}}
	m.installLibrary(t)
	m.limitLibrary()
	for i := range m.Devices {
		m.complete(i)
	}
	return m
}

// limitLibrary has the library tell which functions it has not. One of them the
// mock cannot have.
func (m *machine) limitLibrary() {
	m.LookupSymbolFunc = func(symbol string) error {
		if symbol == "nvmlDeviceGetGpuInstanceProfileInfoV" || slices.Contains(m.lacking, symbol) {
			return errors.New("undefined symbol")
		}
		return nil
	}
}

// complete gives device i a fixed identity and the answers that the mock lacks.
func (m *machine) complete(i int) {
	d := m.device(i)
	d.UUID = fmt.Sprintf("GPU-%08x-1111-4222-8333-444444444444", i)
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: 81559 << 20, Reserved: 551 << 20}, nvml.SUCCESS
	}
	d.GetNumGpuCoresFunc = func() (int, nvml.Return) { return 16896, nvml.SUCCESS }
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		return nvml.PciInfo{Bus: uint32(0x10 + i)}, nvml.SUCCESS
	}
	// What MIG is like is shown on the simulated driver.
	d.GetGpuInstanceProfileInfoFunc = func(int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
		return nvml.GpuInstanceProfileInfo{}, nvml.ERROR_INVALID_ARGUMENT
	}
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
	address := fmt.Sprintf("0000:%02x:00.0", 0x10+i)
	path := fmt.Sprintf("devices/pci0000:0%d/%s", i/4, address)
	m.sysfs[path+"/numa_node"] = &fstest.MapFile{Data: fmt.Appendln(nil, i/4)}
	m.sysfs["bus/pci/devices/"+address] = link("../../../" + path)
	m.sysfs["bus/pci/drivers/nvidia/"+address] = link("../../../../" + path)
}

func link(target string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
}

func (m *machine) device(i int) *server.Device { return m.Devices[i].(*server.Device) }

// library is where NVML's library is.
func (m *machine) library() string { return filepath.Join(m.root, "usr/lib64", libraryName) }

// installLibrary puts a new file in the place of NVML's library.
func (m *machine) installLibrary(t *testing.T) {
	t.Helper()
	path := m.library()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	// The former file stays, so that the new one is not mistaken for it.
	_ = os.Rename(path, path+fmt.Sprint(len(m.InitCalls())))
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) client() *Client {
	c := New(Options{DriverRoot: m.root, SysFS: m.sysfs})
	c.newNVML = func(string) nvml.Interface { return m }
	return c
}

// gpu is what a scan finds of device i, if nothing is wrong.
func (m *machine) gpu(i int) gpu.GPU {
	node := int64(i / 4)
	return gpu.GPU{
		UUID:                  m.device(i).UUID,
		ProductName:           "NVIDIA H100 80GB HBM3",
		Brand:                 "NVIDIA",
		Architecture:          "Hopper",
		CUDAComputeCapability: "9.0",
		CUDADriverVersion:     "12.4",
		DriverVersion:         "550.54.15",
		Memory:                &gpu.Memory{Total: 81559 << 20, Reserved: 551 << 20},
		Multiprocessors:       132,
		PCIBusID:              fmt.Sprintf("0000:%02x:00.0", 0x10+i),
		PCIeRoot:              fmt.Sprintf("pci0000:0%d", i/4),
		NUMANode:              &node,
		MIG:                   &gpu.MultiInstance{},
	}
}

// gpus is what a scan finds, if nothing is wrong.
func (m *machine) gpus() []gpu.GPU {
	var gpus []gpu.GPU
	for i := range m.Devices {
		gpus = append(gpus, m.gpu(i))
	}
	return gpus
}
