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

package driver

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/memslice/memslice/pkg/config"
	"github.com/memslice/memslice/pkg/gpu"
)

// prepareHost makes the directories that the plugin needs, puts the hook where
// the container runtime can run it, and clears away what killed instances left.
func prepareHost(cfg *config.Config) error {
	// The claims of a node are nobody's business but root's; the CDI specs and
	// the kubelet's directories have readers.
	for dir, mode := range map[string]os.FileMode{cfg.PluginDir(): 0o750, cfg.CDIRoot: 0o755} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("make the directory %s: %w", dir, err)
		}
	}
	if _, err := os.Stat(cfg.RegistryDir()); err != nil {
		return fmt.Errorf("find the kubelet's directory for plugins (is --kubelet-root-dir=%s the kubelet's --root-dir?): %w", cfg.KubeletRootDir, err)
	}
	if err := installHook("--nvidia-cdi-hook", cfg.NVIDIACDIHook, cfg.HostCDIHook()); err != nil {
		return err
	}
	if err := installHook("--hook", cfg.Hook, cfg.HostHook()); err != nil {
		return err
	}
	return removeDeadSockets(
		filepath.Join(cfg.RegistryDir(), gpu.DriverName+"-*reg.sock"),
		filepath.Join(cfg.PluginDir(), "dra*.sock"),
		filepath.Join(cfg.PluginDir(), "health*.sock"),
	)
}

// installHook replaces the host's copy of a program in one step, because a
// container may be starting with the old one.
func installHook(flag, from, to string) error {
	program, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read a hook that containers start with (%s): %w", flag, err)
	}
	if installed, err := os.ReadFile(to); err == nil && bytes.Equal(installed, program) {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(to), ".hook-*")
	if err != nil {
		return fmt.Errorf("install %s: %w", to, err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(program)
	err = errors.Join(err, tmp.Chmod(0o755), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), to)
	}
	if err != nil {
		return fmt.Errorf("install %s: %w", to, err)
	}
	return nil
}

// removeDeadSockets removes the sockets that match and that nobody listens on.
// Each pod has sockets of its own, so one that was killed leaves them for good,
// and the kubelet keeps trying to call them.
func removeDeadSockets(patterns ...string) error {
	for _, pattern := range patterns {
		sockets, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("look for sockets: %w", err)
		}
		for _, socket := range sockets {
			conn, err := net.Dial("unix", socket)
			if err == nil {
				conn.Close()
				continue
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				continue
			}
			if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("remove a socket that nobody listens on: %w", err)
			}
		}
	}
	return nil
}
