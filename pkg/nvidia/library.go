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
	"os"
	"path/filepath"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// ErrDriverUnavailable is why there is no inventory: the driver is not
// installed, not loaded, or not usable. The message has the reason and the
// remedy.
var ErrDriverUnavailable = errors.New("the NVIDIA driver is not available")

// ErrRestartRequired comes with ErrDriverUnavailable when the driver was
// replaced by another version. This process is bound to the library of the
// former one for as long as it lives.
var ErrRestartRequired = errors.New("this process has to be restarted")

const libraryName = "libnvidia-ml.so.1"

// libraryDirs are where distributions, NVIDIA's driver containers and GKE (its
// driver root has lib64 at the top) put the driver's libraries.
var libraryDirs = []string{
	"usr/lib64",
	"usr/lib/x86_64-linux-gnu",
	"usr/lib/aarch64-linux-gnu",
	"lib64",
	"lib/x86_64-linux-gnu",
	"lib/aarch64-linux-gnu",
	"usr/lib",
	"lib",
}

// library is NVML's shared library in this process.
type library struct {
	api  nvml.Interface
	path string
	file os.FileInfo // when it was found
}

// findLibrary does not load it.
func findLibrary(root string) (*library, error) {
	for _, dir := range libraryDirs {
		path := filepath.Join(root, dir, libraryName)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return &library{path: path, file: info}, nil
		}
	}
	return nil, fmt.Errorf("%w: there is no %s under the driver root %s (looked in %s); install the driver, or set the driver root to where it is installed",
		ErrDriverUnavailable, libraryName, root, strings.Join(libraryDirs, ", "))
}

// unavailable explains an error of NVML that keeps it from being used at all.
func (c *Client) unavailable(doing string, ret nvml.Return) error {
	reason := fmt.Errorf("%w: %s: %w", ErrDriverUnavailable, doing, ret)
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("%w; check that the file is complete and built for this machine's processor", reason)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return fmt.Errorf("%w; load the kernel module (modprobe nvidia), or wait until the driver's installer has done so", reason)
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%w; run this process as root with access to /dev/nvidiactl and /dev/nvidia*", reason)
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		if c.libraryReplaced() {
			return fmt.Errorf("%w; %w: another version of %s was installed after it had loaded the former one",
				reason, ErrRestartRequired, libraryName)
		}
		return fmt.Errorf("%w; the kernel module is of another version than the library: reload the module or reboot", reason)
	}
	return fmt.Errorf("%w; see the kernel's log for messages of the nvidia module (dmesg)", reason)
}

// libraryReplaced tells whether a new process would load another file than
// this one did.
func (c *Client) libraryReplaced() bool {
	if c.library == nil {
		return false
	}
	now, err := findLibrary(c.driverRoot)
	return err == nil && !os.SameFile(now.file, c.library.file)
}
