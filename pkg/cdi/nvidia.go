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

package cdi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform/root"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/memslice/memslice/pkg/gpu"
)

// controlNodes are the device nodes without which no GPU can be used.
var controlNodes = []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}

// memoryLimitsHook would set memory limits to what variables in the
// container's own environment say, so that whoever writes the pod could lift
// those of this driver. nvcdi adds it to every GPU unless told otherwise.
const memoryLimitsHook = "apply-cuda-memory-limits"

// NVIDIAOptions says where the driver is and how to ask it.
type NVIDIAOptions struct {
	// DriverRoot is where this process sees what the host, and so the
	// container runtime, has at HostDriverRoot.
	DriverRoot     string
	HostDriverRoot string

	// DevRoot is where this process sees the host's root as far as its dev/ is
	// concerned; empty means "/". Device nodes are taken from there where the
	// driver root has none.
	DevRoot string

	// ProcRoot is where this process sees procfs; empty means "/proc". The
	// driver tells there which device nodes belong to MIG instances.
	ProcRoot string

	// HookPath is the program nvidia-cdi-hook on the host.
	HookPath string

	// NVML makes nvcdi use the NVML that the rest of the process uses, with
	// nvcdi.WithNvmlLib. It fails while there is no driver.
	NVML func() (nvcdi.Option, error)

	// Minor is the minor number of a GPU's device node, at the moment.
	Minor func(uuid string) (int, error)
}

// NVIDIA is the edits that NVIDIA's container toolkit makes for GPUs, and those
// for MIG instances on them, which it makes only where procfs is in its place. It
// keeps nothing between two calls, so that a driver that is replaced, or a device
// node that appears, counts from the next one on.
type NVIDIA struct {
	o     NVIDIAOptions
	namer nvcdi.DeviceNamer
}

// NewNVIDIA checks the options. It does not touch the driver.
func NewNVIDIA(o NVIDIAOptions) (*NVIDIA, error) {
	switch {
	case !filepath.IsAbs(o.DriverRoot), !filepath.IsAbs(o.HostDriverRoot):
		return nil, fmt.Errorf("driver root %q, on the host %q: must both be absolute paths", o.DriverRoot, o.HostDriverRoot)
	case o.ProcRoot != "" && !filepath.IsAbs(o.ProcRoot):
		return nil, fmt.Errorf("procfs at %q: must be an absolute path", o.ProcRoot)
	case !filepath.IsAbs(o.HookPath):
		return nil, fmt.Errorf("path %q of nvidia-cdi-hook on the host: must be absolute", o.HookPath)
	case o.NVML == nil || o.Minor == nil:
		return nil, errors.New("no NVML to ask about GPUs")
	}
	o.DevRoot, o.ProcRoot = cmp.Or(o.DevRoot, "/"), cmp.Or(o.ProcRoot, "/proc")
	namer, err := nvcdi.NewDeviceNamer(nvcdi.DeviceNameStrategyUUID)
	if err != nil {
		return nil, err
	}
	return &NVIDIA{o: o, namer: namer}, nil
}

// Spec implements Source. A device node that a GPU or an instance needs, and that
// a container could not have, is an error that names it.
func (n *NVIDIA) Spec(ctx context.Context, assignments []gpu.Assignment) (*specs.Spec, error) {
	var uuids []string
	for _, a := range assignments {
		if !slices.Contains(uuids, a.UUID) {
			uuids = append(uuids, a.UUID)
		}
	}
	devRoot, hostDevRoot := n.devRoots()
	spec, err := n.generate(ctx, uuids, devRoot)
	if err != nil {
		return nil, n.explain(uuids, err)
	}
	minors := make(map[string]int, len(uuids))
	for _, uuid := range uuids {
		if minors[uuid], err = n.o.Minor(uuid); err != nil {
			return nil, fmt.Errorf("GPU %s: which device node it has: %w", uuid, err)
		}
	}
	if err := n.checkNodes(spec, uuids, minors, hostDevRoot); err != nil {
		return nil, err
	}
	if err := n.addInstances(spec, assignments, minors, devRoot, hostDevRoot); err != nil {
		return nil, err
	}
	toHost := root.NewDriverTransformer(
		root.WithDriverRoot(n.o.DriverRoot), root.WithTargetDriverRoot(n.o.HostDriverRoot),
		root.WithDevRoot(devRoot), root.WithTargetDevRoot(hostDevRoot),
	)
	if err := toHost.Transform(spec); err != nil {
		return nil, n.explain(uuids, err)
	}
	return spec, nil
}

// generate has NVIDIA's toolkit describe GPUs, with paths as this process sees
// them. For one in MIG mode that is the same as for others.
func (n *NVIDIA) generate(ctx context.Context, uuids []string, devRoot string) (*specs.Spec, error) {
	withNVML, err := n.o.NVML()
	if err != nil {
		return nil, err
	}
	lib, err := nvcdi.New(
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithLogger(toolkitLogger{klog.FromContext(ctx)}),
		nvcdi.WithDriverRoot(n.o.DriverRoot),
		nvcdi.WithDevRoot(devRoot),
		nvcdi.WithNVIDIACDIHookPath(n.o.HookPath),
		nvcdi.WithDeviceNamers(n.namer),
		// The IPC discoverer would mount /tmp/nvidia-mps, the MPS daemon of
		// whoever else has one on the host.
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils, nvcdi.FeatureDisableIPCDiscoverer),
		nvcdi.WithDisabledHooks(memoryLimitsHook),
		withNVML,
	)
	if err != nil {
		return nil, err
	}
	spec, err := lib.GetSpec(uuids...)
	if err != nil {
		return nil, err
	}
	return spec.Raw(), nil
}

// devRoots is the directory with the dev/ that has the driver's nodes, as seen
// by this process and on the host. A driver in a container has its own; one on
// the host shares the host's, be it installed at / or elsewhere.
func (n *NVIDIA) devRoots() (here, host string) {
	if isCharDevice(filepath.Join(n.o.DriverRoot, controlNodes[0])) {
		return n.o.DriverRoot, n.o.HostDriverRoot
	}
	return n.o.DevRoot, "/"
}

func gpuNode(minor int) string { return fmt.Sprintf("/dev/nvidia%d", minor) }

func isCharDevice(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (n *NVIDIA) explain(uuids []string, err error) error {
	return fmt.Errorf("GPU %s: no CDI edits from the driver at %s on the host: %w; check that the driver is loaded and that --driver-root names the directory that it is installed in", strings.Join(uuids, ", "), n.o.HostDriverRoot, err)
}

// checkNodes makes an error of what nvcdi only warns of: edits that lack a
// device node, with which a container would start and find no GPU.
func (n *NVIDIA) checkNodes(spec *specs.Spec, uuids []string, minors map[string]int, hostDevRoot string) error {
	var missing []string
	require := func(edits *specs.ContainerEdits, path string) {
		if !slices.ContainsFunc(edits.DeviceNodes, func(d *specs.DeviceNode) bool { return d.Path == path }) {
			missing = append(missing, filepath.Join(hostDevRoot, path))
		}
	}
	for _, path := range controlNodes {
		require(&spec.ContainerEdits, path)
	}
	for _, uuid := range uuids {
		at := slices.IndexFunc(spec.Devices, func(d specs.Device) bool { return d.Name == uuid })
		if at < 0 {
			return n.explain([]string{uuid}, errors.New("nvcdi left it out"))
		}
		require(&spec.Devices[at].ContainerEdits, gpuNode(minors[uuid]))
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("GPU %s: missing on the host: device node %s (driver root %s); create it with \"nvidia-modprobe\" or \"nvidia-smi\" there, the kubelet tries again by itself", strings.Join(uuids, ", "), strings.Join(missing, ", "), n.o.HostDriverRoot)
}
