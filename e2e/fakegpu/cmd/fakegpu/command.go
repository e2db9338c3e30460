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
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/memslice/memslice/e2e/fakegpu/driverroot"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// rootVariable names the driver root where no flag does.
const rootVariable = "FAKEGPU_ROOT"

// options are the flags that all commands share.
type options struct{ root string }

func newCommand() *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "fakegpu",
		Short: "Simulate NVIDIA GPUs below NVML",
		Long: `fakegpu makes a directory that looks like the root of an NVIDIA driver
installation, with a libnvidia-ml.so.1 that answers from a state file in it,
and changes that state. Processes that have the library loaded see a change
with their next call.`,
		Example: `  fakegpu init --root /tmp/driver --lib libnvidia-ml-r580.so --preset h100x8
  fakegpu state --root /tmp/driver
  fakegpu set gpu 3 --root /tmp/driver --fail memoryInfo=UNKNOWN`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	command.CompletionOptions.DisableDefaultCmd = true
	command.PersistentFlags().StringVar(&o.root, "root", os.Getenv(rootVariable),
		"the driver root's directory (or set "+rootVariable+")")
	command.AddCommand(newInit(o), newState(o), newSet(o), newRemoveGPU(o), newAddGPU(o),
		newMIG(o), newProcess(o), newLimit(o), newKernel(o), newReset(o), newXID(o), newUnload(o), newLoad(o), newDestroy(o))
	return command
}

// open finds the driver root and the state in it.
func (o *options) open() (*driverroot.Root, *state.Store, error) {
	if o.root == "" {
		return nil, nil, errors.New("no driver root: give --root DIR or set " + rootVariable)
	}
	path, err := filepath.Abs(o.root)
	if err != nil {
		return nil, nil, fmt.Errorf("resolving --root %s: %w", o.root, err)
	}
	root := driverroot.At(path)
	return root, state.Open(root.StateDir()), nil
}

// update changes the state, and the files with it.
func (o *options) update(command *cobra.Command, change func(*state.State) error) error {
	root, store, err := o.open()
	if err != nil {
		return err
	}
	err = store.Update(func(s *state.State) error {
		if err := change(s); err != nil {
			return err
		}
		return root.Sync(s)
	})
	if err != nil {
		return err
	}
	sayPlaceholders(command, root)
	return nil
}

// updateGPU changes one GPU that a flag names.
func (o *options) updateGPU(command *cobra.Command, name string, change func(*state.GPU) error) error {
	return o.update(command, func(s *state.State) error {
		if name == "" {
			return errors.New("no GPU: give --gpu with an index, a UUID or a PCI address as 'fakegpu state' shows them")
		}
		gpu, err := s.Find(name)
		if err != nil {
			return err
		}
		switch {
		case !s.Driver.Loaded:
			return errors.New("the driver is not loaded: 'fakegpu load' does that")
		case gpu.Removed:
			return fmt.Errorf("GPU %s is removed: 'fakegpu add-gpu' brings it back", gpu.UUID)
		}
		return change(gpu)
	})
}

func sayPlaceholders(command *cobra.Command, root *driverroot.Root) {
	if root.Placeholders() {
		fmt.Fprintln(command.ErrOrStderr(), "note: without root, the device nodes are placeholders that cannot be opened")
	}
}
