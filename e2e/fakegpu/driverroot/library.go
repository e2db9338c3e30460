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

package driverroot

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// platform is what differs between the architectures that NVIDIA has drivers
// for.
type platform struct {
	machine elf.Machine
	libDir  string
}

var platforms = map[string]platform{
	"amd64": {elf.EM_X86_64, "usr/lib/x86_64-linux-gnu"},
	"arm64": {elf.EM_AARCH64, "usr/lib/aarch64-linux-gnu"},
}

// LibDir is where the libraries are below the driver root on this machine.
func LibDir() string { return platforms[runtime.GOARCH].libDir }

// nvmlLibrary is the one library that does something.
const nvmlLibrary = "libnvidia-ml.so.1"

// driverLibraries are the other libraries of a compute installation, by the
// name that programs link to. Their files have the driver's version for a
// suffix in place of the number.
var driverLibraries = []string{
	"libcuda.so.1",
	"libcudadebugger.so.1",
	"libnvcuvid.so.1",
	"libnvidia-allocator.so.1",
	"libnvidia-cfg.so.1",
	"libnvidia-encode.so.1",
	"libnvidia-nvvm.so.4",
	"libnvidia-opencl.so.1",
	"libnvidia-opticalflow.so.1",
	"libnvidia-ptxjitcompiler.so.1",
}

// firmware is what the GPU's own processor loads.
var firmware = []string{"gsp_ga10x.bin", "gsp_tu10x.bin"}

// syncLibraries writes the libraries as valid objects, because containers run
// ldconfig over them, and NVML unless it is to be absent.
func (r *Root) syncLibraries(s *state.State) error {
	platform, ok := platforms[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("there is no NVIDIA driver for %s to simulate", runtime.GOARCH)
	}
	for _, soname := range driverLibraries {
		if err := r.addLibrary(platform, soname, s.Driver.Version, sharedObject(platform.machine, soname)); err != nil {
			return err
		}
	}
	if s.Driver.LibraryAbsent {
		dir := r.join(platform.libDir)
		for _, name := range []string{nvmlLibrary, versioned(nvmlLibrary, s.Driver.Version), unversioned(nvmlLibrary)} {
			if err := r.remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		return nil
	}
	content, err := os.ReadFile(r.storedLibrary())
	if err != nil {
		return fmt.Errorf("reading the simulated library that init installed: %w", err)
	}
	return r.addLibrary(platform, nvmlLibrary, s.Driver.Version, content)
}

// addLibrary writes a library's file and the links to it.
func (r *Root) addLibrary(p platform, soname, version string, content []byte) error {
	dir := r.join(p.libDir)
	file := versioned(soname, version)
	if err := r.writeFile(filepath.Join(dir, file), content, 0o644); err != nil {
		return err
	}
	if err := r.link(file, filepath.Join(dir, soname)); err != nil {
		return err
	}
	return r.link(soname, filepath.Join(dir, unversioned(soname)))
}

func (r *Root) syncFirmware(s *state.State) error {
	for _, name := range firmware {
		path := filepath.Join(r.join("lib/firmware/nvidia"), s.Driver.Version, name)
		if err := r.writeFile(path, []byte("simulated firmware\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// versioned turns libx.so.1 into libx.so.580.95.05.
func versioned(soname, version string) string { return unversioned(soname) + "." + version }

// unversioned turns libx.so.1 into libx.so.
func unversioned(soname string) string { return soname[:strings.LastIndexByte(soname, '.')] }
