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

// Package statetest makes disks fail and machines die at a chosen step, for the
// tests of whoever has to survive that.
package statetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/memslice/memslice/pkg/state"
)

// ErrInjected is the error of a step that was made to fail, and of every step
// after a crash.
var ErrInjected = errors.New("injected failure")

// Mode is what happens at the step that was chosen.
type Mode string

const (
	// Fail is an error of that one step, which has no effect.
	Fail Mode = "fail"
	// FailAfter is an error of that one step, which has taken effect.
	FailAfter Mode = "fail after"
	// Crash is the end of the process before that step: neither it nor any
	// later one has an effect.
	Crash Mode = "crash"
	// Torn is a crash in the middle of that step, where it can be divided.
	Torn Mode = "torn"
)

// Modes are all modes.
var Modes = []Mode{Fail, FailAfter, Crash, Torn}

// Faults decides at which step things go wrong. The zero value lets everything
// pass. It is shared by all that is to fail as one machine.
type Faults struct {
	At   int // the first step is 1
	Mode Mode

	mu   sync.Mutex
	step int
}

// Steps is the number of steps so far.
func (f *Faults) Steps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.step
}

// Do runs one step. Torn is what the step does where it is cut short; nil means
// nothing.
func (f *Faults) Do(step, torn func() error) error {
	f.mu.Lock()
	f.step++
	now, dead := f.step == f.At, f.At > 0 && f.step > f.At && (f.Mode == Crash || f.Mode == Torn)
	f.mu.Unlock()
	switch {
	case dead || now && (f.Mode == Crash || f.Mode == Fail):
		return ErrInjected
	case now && f.Mode == Torn:
		if torn != nil {
			_ = torn()
		}
		return ErrInjected
	case now:
		return errors.Join(ErrInjected, step())
	}
	return step()
}

// Disk is the file system of the machine with faults. It syncs nothing, which
// takes long, but remembers which names would not be on a disk yet, for
// PowerLoss to take back.
type Disk struct {
	state.OS
	Faults *Faults

	mu   sync.Mutex
	undo map[string][]func() // by directory, since it was synced
}

// WriteFile is a step that a crash may leave half done.
func (d *Disk) WriteFile(name string, data []byte, perm fs.FileMode) error {
	return d.Faults.Do(
		func() error { d.remember(name); return os.WriteFile(name, data, perm) },
		func() error { d.remember(name); return os.WriteFile(name, data[:len(data)/2], perm) },
	)
}

// Rename is a step.
func (d *Disk) Rename(from, to string) error {
	return d.Faults.Do(func() error { d.remember(to); d.remember(from); return d.OS.Rename(from, to) }, nil)
}

// Remove is a step.
func (d *Disk) Remove(name string) error {
	return d.Faults.Do(func() error { d.remember(name); return d.OS.Remove(name) }, nil)
}

// SyncDir is a step.
func (d *Disk) SyncDir(name string) error {
	return d.Faults.Do(func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.undo, filepath.Clean(name))
		return nil
	}, nil)
}

// remember notes what a name stands for now.
func (d *Disk) remember(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.undo == nil {
		d.undo = make(map[string][]func())
	}
	back := func() { _ = os.Remove(name) }
	if data, err := os.ReadFile(name); err == nil {
		back = func() { _ = os.WriteFile(name, data, 0o600) } //nolint:gosec // the name is the test's
	}
	dir := filepath.Dir(name)
	d.undo[dir] = append(d.undo[dir], back)
}

// PowerLoss takes back every change of a name that was not synced.
func (d *Disk) PowerLoss() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, undo := range d.undo {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}
	d.undo = nil
}
