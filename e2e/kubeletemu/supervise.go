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
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

const (
	restartDelay = time.Second
	stopLimit    = 10 * time.Second
)

// keepRunning runs a program, with its output on this process's, and starts it
// again whenever it ends or a value arrives on restart. It returns once ctx is
// done and the program has ended.
func keepRunning(ctx context.Context, argv []string, restart <-chan os.Signal) {
	// The kernel ends the program with the thread that started it, so that it
	// does not outlive this process even when that is killed.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	logger := klog.FromContext(ctx).WithValues("program", argv[0])
	for ctx.Err() == nil {
		runCtx, cancel := context.WithCancel(ctx)
		command := exec.CommandContext(runCtx, argv[0], argv[1:]...)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
		command.WaitDelay = stopLimit
		err := command.Start()
		if err == nil {
			ended := make(chan error, 1)
			go func() { ended <- command.Wait() }()
			select {
			case err = <-ended:
			case <-restart:
				logger.Info("Restarting the driver")
				cancel()
				err = <-ended
			}
		}
		cancel()
		if ctx.Err() == nil {
			logger.Error(err, "The driver ended, will be started again")
			select {
			case <-ctx.Done():
			case <-time.After(restartDelay):
			}
		}
	}
}
