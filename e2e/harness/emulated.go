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

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Programs that serve a node which runs no containers.
const (
	emulatorProgram = "kubeletemu"
	pluginProgram   = "memslice-kubelet-plugin"
	nvidiaHook      = "nvidia-cdi-hook"
	memsliceHook    = "memslice-hook"
)

// clusterEnv marks processes that localcluster ends with the cluster.
const clusterEnv = "MEMSLICE_CLUSTER"

func (c *Cluster) emulatorPIDFile() string {
	return filepath.Join(c.status.Dir, "pid", emulatorProgram)
}
func (c *Cluster) emulatorLog() string { return filepath.Join(c.LogDir, emulatorProgram+".log") }

// emulatedConfig is the file that a ConfigMap would be mounted as.
func (c *Cluster) emulatedConfig() string {
	return filepath.Join(c.status.Dir, "conf", "node-config.yaml")
}

// startEmulator has the emulated kubelet run, and under it the plugin.
func (c *Cluster) startEmulator(ctx context.Context) error {
	pid, err := lockedPID(c.emulatorPIDFile())
	if err != nil {
		return err
	}
	if pid != 0 {
		if !c.rebuilt() {
			return nil
		}
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			return fmt.Errorf("stop the emulated kubelet (process %d): %w", pid, err)
		}
		if err := c.awaitNoEmulator(ctx); err != nil {
			return err
		}
	}
	program := func(name string) string { return filepath.Join(c.options.Bin, name) }
	ended, err := c.start(ctx, c.emulatorLog(), emulatorProgram,
		"--kubeconfig", c.Kubeconfig, "--node-name", c.NodeName, "--pid-file", c.emulatorPIDFile(),
		"--kubelet-root-dir", c.status.KubeletRootDir, "--cdi-root", c.CDIDir, "--",
		program(pluginProgram), "-v=4", "--kubeconfig="+c.Kubeconfig, "--node-name="+c.NodeName,
		"--kubelet-root-dir="+c.status.KubeletRootDir, "--cdi-root="+c.CDIDir,
		"--driver-root="+c.GPUs.root, "--sys-root="+filepath.Join(c.GPUs.root, "sys"),
		"--proc-root="+filepath.Join(c.GPUs.root, "proc"), "--config="+c.emulatedConfig(),
		"--nvidia-cdi-hook="+program(nvidiaHook), "--hook="+program(memsliceHook),
		"--scan-interval="+scanInterval, "--audit-interval="+auditInterval, "--reconcile-interval="+reconcileInterval)
	if err != nil {
		return fmt.Errorf("start the emulated kubelet: %w", err)
	}
	return Await(ctx, "the emulated kubelet to run", func(context.Context) (string, error) {
		select {
		case err := <-ended:
			return "", Hopeless(fmt.Errorf("it ended: %w", err))
		default:
		}
		pid, err := lockedPID(c.emulatorPIDFile())
		if err != nil || pid == 0 {
			return "it has not written " + c.emulatorPIDFile(), err
		}
		return "", nil
	})
}

// rebuilt tells whether a program is newer than the process that runs it.
func (c *Cluster) rebuilt() bool {
	started, err := os.Stat(c.emulatorPIDFile())
	if err != nil {
		return true
	}
	for _, program := range []string{emulatorProgram, pluginProgram} {
		info, err := os.Stat(filepath.Join(c.options.Bin, program))
		if err != nil || info.ModTime().After(started.ModTime()) {
			return true
		}
	}
	return false
}

func (c *Cluster) awaitNoEmulator(ctx context.Context) error {
	return Await(ctx, "the emulated kubelet to end", func(context.Context) (string, error) {
		pid, err := lockedPID(c.emulatorPIDFile())
		if err != nil || pid == 0 {
			return "", err
		}
		return fmt.Sprintf("process %d runs", pid), nil
	})
}

// lockedPID is the process that holds a lock on its file, or 0.
func lockedPID(path string) (int, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for a process: %w", err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); err == nil {
		return 0, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("look for a process: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("look for a process: %s: %w", path, err)
	}
	return pid, nil
}

// restartEmulatedPlugin returns when the new process has registered.
func (c *Cluster) restartEmulatedPlugin(ctx context.Context) error {
	pid, err := lockedPID(c.emulatorPIDFile())
	if err != nil {
		return err
	}
	if pid == 0 {
		return fmt.Errorf("no emulated kubelet runs, see %s", c.emulatorLog())
	}
	before := c.registrations()
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		return fmt.Errorf("have the plugin restarted by process %d: %w", pid, err)
	}
	return c.awaitRegistration(ctx, before)
}

// awaitRegistration waits for one more than there were before.
func (c *Cluster) awaitRegistration(ctx context.Context, before int) error {
	return Await(ctx, "the new plugin to register", func(context.Context) (string, error) {
		if c.registrations() > before {
			return "", nil
		}
		return "not in " + c.emulatorLog(), nil
	})
}

// registrations counts them in the emulator's log.
func (c *Cluster) registrations() int {
	text, err := os.ReadFile(c.emulatorLog())
	if err != nil {
		return 0
	}
	return bytes.Count(text, []byte("Driver registered"))
}

// lastOf is the end of a file, for people.
func lastOf(path string, lines int) string {
	out, err := exec.Command("tail", "-n", strconv.Itoa(lines), path).Output()
	if err != nil {
		return err.Error()
	}
	return string(out)
}
