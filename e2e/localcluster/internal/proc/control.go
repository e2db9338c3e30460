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

package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Command is a program to start in the background.
type Command struct {
	Path string
	Args []string // without the program's name
	Env  []string
	Log  string // output is appended to this file
}

// StartDetached starts a program that outlives its parent: in a session of its
// own, away from the terminal and its signals.
func StartDetached(c Command) (Identity, error) {
	if err := os.MkdirAll(filepath.Dir(c.Log), 0o755); err != nil {
		return Identity{}, fmt.Errorf("create folder of %s: %w", c.Log, err)
	}
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return Identity{}, fmt.Errorf("open log %s: %w", c.Log, err)
	}
	defer log.Close()
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = c.Env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Identity{}, fmt.Errorf("start %s: %w", c.Path, err)
	}
	id, err := Of(cmd.Process.Pid)
	// Reaped as soon as it ends, so that its end can be seen at once.
	go func() { _ = cmd.Wait() }()
	return id, err
}

const poll = 20 * time.Millisecond

// Stop asks the process to end, insists after grace, and returns when it is
// gone. It is no error when it was gone before.
func Stop(ctx context.Context, id Identity, grace time.Duration) error {
	if !id.Alive() {
		return nil
	}
	// The handle refers to the process, not to its number: checked after it was
	// obtained, the signals cannot reach another one.
	process, err := os.FindProcess(id.PID)
	if err != nil || !id.Alive() {
		return nil
	}
	defer func() { _ = process.Release() }()
	if grace > 0 {
		_ = process.Signal(syscall.SIGTERM)
		if gone(ctx, id, grace) {
			return nil
		}
	}
	_ = process.Signal(syscall.SIGKILL)
	if !gone(ctx, id, 10*time.Second) {
		return fmt.Errorf("process %d does not end although it was killed", id.PID)
	}
	return nil
}

func gone(ctx context.Context, id Identity, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for id.Alive() {
		select {
		case <-ctx.Done():
			return !id.Alive()
		case <-time.After(poll):
		}
	}
	return true
}
