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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// Root is a driver root in a directory of the host.
type Root struct {
	path string
	// placeholders is set when device nodes are not the real ones.
	placeholders bool
}

// At returns the driver root in a directory, which need not exist yet.
func At(path string) *Root { return &Root{path: path} }

// StateDir is where the root's state lives. The simulated library looks for
// it there, seen from its own file.
func (r *Root) StateDir() string { return r.join("var/lib/fakegpu") }

// Placeholders tells whether Sync had to make device nodes that nothing can open,
// because the caller may not make the real ones.
func (r *Root) Placeholders() bool { return r.placeholders }

// Install takes the simulated library into the root.
func (r *Root) Install(library string) error {
	source, err := os.ReadFile(library)
	if err != nil {
		return fmt.Errorf("reading the simulated library: %w", err)
	}
	return r.writeFile(r.storedLibrary(), source, 0o644)
}

// Clear removes the files of another driver or another set of GPUs. The root
// and its state directory stay the same directories, because containers may
// have them mounted.
func (r *Root) Clear() error {
	for _, dir := range []string{"dev", "lib", "proc", "sys", "usr"} {
		if err := os.RemoveAll(r.join(dir)); err != nil {
			return fmt.Errorf("clearing the driver root: %w", err)
		}
	}
	return nil
}

// Sync makes every file agree with the state. It may be repeated.
func (r *Root) Sync(s *state.State) error {
	return errors.Join(r.syncLibraries(s), r.syncFirmware(s), r.syncDevices(s), r.syncProc(s), r.syncSysfs(s), r.syncKernel())
}

// KernelSocket is where programs in containers find the simulated kernel driver:
// NVIDIA's container toolkit gives them the file that is there, and a socket is a
// file.
const KernelSocket = "/usr/bin/nvidia-debugdump"

// syncKernel puts the kernel driver's socket there, if it has one.
func (r *Root) syncKernel() error {
	socket, path := filepath.Join(r.StateDir(), "kernel.sock"), r.join(KernelSocket)
	made, err := os.Stat(socket)
	if errors.Is(err, fs.ErrNotExist) {
		return r.remove(path)
	}
	if err != nil {
		return fmt.Errorf("looking for the kernel driver's socket: %w", err)
	}
	if linked, err := os.Stat(path); err == nil && os.SameFile(made, linked) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the folder of %s: %w", path, err)
	}
	if err := r.remove(path); err != nil {
		return err
	}
	if err := os.Link(socket, path); err != nil {
		return fmt.Errorf("linking the kernel driver's socket: %w", err)
	}
	return nil
}

// Destroy removes the root. It refuses a directory that holds no state, so
// that a mistyped path costs nothing.
func (r *Root) Destroy() error {
	if _, err := os.Stat(state.Open(r.StateDir()).Path()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is no simulated driver root: it has no %s", r.path, state.Open(r.StateDir()).Path())
		}
		return fmt.Errorf("looking for a simulated driver root: %w", err)
	}
	if err := os.RemoveAll(r.path); err != nil {
		return fmt.Errorf("removing the simulated driver root: %w", err)
	}
	return nil
}

func (r *Root) join(path string) string { return filepath.Join(r.path, path) }

func (r *Root) storedLibrary() string { return filepath.Join(r.StateDir(), "libnvidia-ml.so") }

// writeFile puts a file in place at once and leaves an equal one alone:
// processes may have the old one mapped.
func (r *Root) writeFile(path string, content []byte, mode fs.FileMode) error {
	if existing, err := os.ReadFile(path); err == nil && string(existing) == string(content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the folder of %s: %w", path, err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".fakegpu-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Chmod(mode), temporary.Close())
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// link makes a symbolic link, in place of whatever is there.
func (r *Root) link(target, path string) error {
	if existing, err := os.Readlink(path); err == nil && existing == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the folder of %s: %w", path, err)
	}
	if err := r.remove(path); err != nil {
		return err
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("linking %s: %w", path, err)
	}
	return nil
}

func (r *Root) remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}
