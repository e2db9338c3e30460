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

package main

import (
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/memslice/memslice/e2e/fakegpu/kernel"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

func newKernel(o *options) *cobra.Command {
	var pidFile string
	command := &cobra.Command{
		Use:   "kernel",
		Short: "Give programs the memory of the GPUs, until it is interrupted",
		Long: `kernel is the part of the simulated driver that programs in containers get GPU
memory from, within the limits of their cgroups. They find it by a socket where
a driver has nvidia-debugdump, a file that NVIDIA's container toolkit gives to
every container with a GPU.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			root, store, err := o.open()
			if err != nil {
				return err
			}
			if pidFile != "" {
				lock, err := writePID(pidFile)
				if err != nil {
					return err
				}
				defer os.Remove(pidFile)
				defer lock.Close()
			}
			listener, err := kernel.Listen(root.StateDir())
			if err != nil {
				return err
			}
			// It links the socket to where containers find it.
			if err := o.update(command, func(*state.State) error { return nil }); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			server := kernel.Server{
				Store: store, Machine: kernel.Machine{Proc: "/proc", Cgroup: "/sys/fs/cgroup"},
				Log: log.New(command.ErrOrStderr(), "", log.LstdFlags),
			}
			return server.Serve(ctx, listener)
		},
	}
	command.Flags().StringVar(&pidFile, "pid-file", "", "a file for the process' id, locked while it runs")
	return command
}

// writePID fails where another process holds the file's lock.
func writePID(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the pid file: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("another process holds %s: %w", path, err)
	}
	if err := file.Truncate(0); err != nil {
		return nil, fmt.Errorf("write the pid file: %w", err)
	}
	if _, err := fmt.Fprintln(file, os.Getpid()); err != nil {
		return nil, fmt.Errorf("write the pid file: %w", err)
	}
	return file, nil
}
