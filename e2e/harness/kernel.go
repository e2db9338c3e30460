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
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// kernelProgram has the simulated kernel driver, which programs in containers
// get GPU memory from.
const kernelProgram = "fakegpu"

// startKernel has the simulated kernel driver run.
func (c *Cluster) startKernel(ctx context.Context) error {
	pidFile := filepath.Join(c.status.Dir, "pid", "fakegpu-kernel")
	if pid, err := lockedPID(pidFile); err != nil || pid != 0 {
		return err
	}
	ended, err := c.start(ctx, filepath.Join(c.LogDir, "fakegpu-kernel.log"), kernelProgram, "kernel", "--root", c.GPUs.root, "--pid-file", pidFile)
	if err != nil {
		return fmt.Errorf("start the simulated kernel driver: %w", err)
	}
	return Await(ctx, "the simulated kernel driver to run", func(context.Context) (string, error) {
		select {
		case err := <-ended:
			return "", Hopeless(fmt.Errorf("it ended: %w; its log is in %s", err, c.LogDir))
		default:
		}
		pid, err := lockedPID(pidFile)
		if err != nil || pid == 0 {
			return "it has not written " + pidFile, err
		}
		return "", nil
	})
}

// start has a program run after this one has ended, until the cluster does. What
// it prints is appended to a log. ended tells when it has.
func (c *Cluster) start(ctx context.Context, log, program string, args ...string) (ended <-chan error, err error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open its log: %w", err)
	}
	defer output.Close()
	command, err := c.tools.command(context.WithoutCancel(ctx), program, args...)
	if err != nil {
		return nil, err
	}
	command.Env = append(command.Env, clusterEnv+"="+c.status.Dir)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	return done, nil
}
