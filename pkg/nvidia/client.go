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
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"
)

// Options say where the driver is.
type Options struct {
	// DriverRoot is the root directory of the NVIDIA driver as this process
	// sees it; "/" by default.
	DriverRoot string

	// SysFS is the kernel's sysfs; /sys by default.
	SysFS fs.ReadLinkFS

	// Cgroup is the path of this process' own cgroup, on which limits of GPU
	// memory are tried; nil means that they are not.
	Cgroup func() (string, error)
}

// Client reads GPUs. It may be used by several goroutines.
type Client struct {
	driverRoot string
	sysfs      fs.ReadLinkFS
	cgroup     func() (string, error)
	newNVML    func(path string) nvml.Interface

	mu      sync.Mutex
	library *library // once loaded, for good
	session *session // nil while NVML is not initialised
}

// session is the time between NVML's Init and Shutdown.
type session struct {
	// attached are the PCI devices that had the driver when the session began.
	// NVML may not see others.
	attached []string

	// renew tells that a GPU was lost, whose return NVML may not see.
	renew bool

	// handles are those of the last scan, by UUID.
	handles map[string]nvml.Device

	// tried is what came of trying limits, by UUID.
	tried map[string]bool
}

// New prepares a client. The driver need not be there yet.
func New(o Options) *Client {
	c := &Client{
		driverRoot: o.DriverRoot,
		sysfs:      o.SysFS,
		cgroup:     o.Cgroup,
		newNVML:    func(path string) nvml.Interface { return nvml.New(nvml.WithLibraryPath(path)) },
	}
	if c.driverRoot == "" {
		c.driverRoot = "/"
	}
	if c.sysfs == nil {
		c.sysfs = os.DirFS("/sys").(fs.ReadLinkFS)
	}
	return c
}

// Scan reads all GPUs anew. It goes by NVML's indexes, which cost nothing to
// look up and are right at that moment, rather than by handles of former scans,
// which NVML voids when it discovers GPUs.
//
// The error is ErrDriverUnavailable while there is no driver to ask. A later
// Scan may then succeed, unless the error is ErrRestartRequired too.
func (c *Client) Scan(ctx context.Context) (Inventory, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if s := c.session; s != nil && (s.renew || !slices.Equal(s.attached, c.attached())) {
		klog.FromContext(ctx).V(4).Info("Restarting NVML, as a GPU was lost, added or removed")
		c.shutdown()
	}
	inventory, err := c.scan(ctx)
	var ended *sessionEnded
	if errors.As(err, &ended) {
		klog.FromContext(ctx).V(2).Info("Restarting NVML, as the driver was unloaded or reloaded", "err", err)
		inventory, err = c.scan(ctx)
	}
	if errors.As(err, &ended) {
		return Inventory{}, c.unavailable(ended.query, ended.ret)
	}
	return inventory, err
}

// scan leaves no session behind that it found to have ended.
func (c *Client) scan(ctx context.Context) (Inventory, error) {
	if err := c.initialise(); err != nil {
		return Inventory{}, err
	}
	s := scanner{api: c.library.api, sysfs: c.sysfs, cgroup: c.cgroup, tried: c.session.tried, handles: map[string]nvml.Device{}}
	err := s.scan(ctx)
	var ended *sessionEnded
	if errors.As(err, &ended) {
		c.shutdown()
	}
	if err != nil {
		return Inventory{}, err
	}
	c.session.renew, c.session.handles = s.lost, s.handles
	return s.inventory(), nil
}

// Close releases the driver, which cannot be unloaded before. A Scan after
// Close starts over.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shutdown()
}

// initialise begins a session unless there is one.
func (c *Client) initialise() error {
	if c.session != nil {
		return nil
	}
	lib := c.library
	if lib == nil {
		var err error
		if lib, err = findLibrary(c.driverRoot); err != nil {
			return err
		}
		lib.api = c.newNVML(lib.path)
	}
	// Before NVML looks for itself, so that nothing is missed in between.
	attached := c.attached()
	ret := lib.api.Init()
	if ret != nvml.ERROR_LIBRARY_NOT_FOUND {
		c.library = lib
	}
	if ret != nvml.SUCCESS {
		return c.unavailable("loading "+lib.path, ret)
	}
	c.session = &session{attached: attached, tried: map[string]bool{}}
	return nil
}

// shutdown drops the session. Where NVML refuses, the session had ended.
func (c *Client) shutdown() {
	if c.session == nil {
		return
	}
	_ = c.library.api.Shutdown()
	c.session = nil
}

// attached lists the PCI devices that the nvidia kernel driver has. None are
// found where sysfs does not tell; then NVML's own view has to do.
func (c *Client) attached() []string {
	devices, err := fs.Glob(c.sysfs, "bus/pci/drivers/nvidia/*:*:*.*")
	if err != nil {
		return nil
	}
	return devices
}
