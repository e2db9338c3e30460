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
	"strings"

	"github.com/spf13/cobra"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

type initOptions struct {
	*options
	library, preset, seed string
	gpus                  int
	force                 bool
}

func newInit(shared *options) *cobra.Command {
	o := &initOptions{options: shared}
	command := &cobra.Command{
		Use:   "init",
		Short: "Make a driver root, or bring its files up to date",
		Long: `init makes a driver root for a preset. On a root that exists with the same
preset, number of GPUs and seed it renews the files, the library included, and
keeps the state, faults and all. With --force it begins anew.

Presets:
` + describePresets(),
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return o.run(command) },
	}
	flags := command.Flags()
	flags.StringVar(&o.library, "lib", "", "the simulated libnvidia-ml.so.1, or the folder with one for each generation of drivers (required)")
	flags.StringVar(&o.preset, "preset", "", "which node to simulate (required)")
	flags.StringVar(&o.seed, "seed", "", "makes the GPUs' UUIDs differ from those of a node with another seed")
	flags.IntVar(&o.gpus, "gpus", 0, fmt.Sprintf("how many GPUs, 1 to %d (default: as many as the preset has)", catalog.MaxGPUs))
	flags.BoolVar(&o.force, "force", false, "replace the state of an existing root")
	return command
}

func describePresets() string {
	var text strings.Builder
	for _, name := range catalog.PresetNames() {
		preset, err := catalog.LookupPreset(name)
		if err != nil {
			continue
		}
		fmt.Fprintf(&text, "  %-12s %s, driver %s\n", name, preset.Description, preset.Driver.Version)
	}
	return strings.TrimSuffix(text.String(), "\n")
}

func (o *initOptions) run(command *cobra.Command) error {
	if o.library == "" || o.preset == "" {
		return errors.New("init needs --lib FILE and --preset NAME")
	}
	preset, err := catalog.LookupPreset(o.preset)
	if err != nil {
		return err
	}
	if command.Flags().Changed("gpus") && o.gpus == 0 {
		return fmt.Errorf("--gpus 0: a simulated node has 1 to %d", catalog.MaxGPUs)
	}
	wanted, err := state.New(preset, o.gpus, o.seed)
	if err != nil {
		return fmt.Errorf("--gpus: %w", err)
	}
	root, store, err := o.open()
	if err != nil {
		return err
	}
	if err := store.Create(wanted, o.force, sameNode(wanted)); err != nil {
		return err
	}
	if o.force {
		if err := root.Clear(); err != nil {
			return err
		}
	}
	if err := root.Install(libraryOf(o.library, preset.Driver)); err != nil {
		return err
	}
	if err := o.update(command, func(*state.State) error { return nil }); err != nil {
		return err
	}
	current, err := store.Load()
	if err != nil {
		return err
	}
	return printTable(command.OutOrStdout(), current)
}

// libraryOf is the library in a folder that is for a driver. A path that is no
// folder is that of the library.
func libraryOf(path string, driver catalog.Driver) string {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return path
	}
	return filepath.Join(path, "libnvidia-ml-"+driver.Generation()+".so")
}

// sameNode accepts a state that began as the wanted one.
func sameNode(wanted *state.State) func(*state.State) error {
	return func(existing *state.State) error {
		if existing.Preset == wanted.Preset && existing.Seed == wanted.Seed && len(existing.GPUs) == len(wanted.GPUs) {
			return nil
		}
		return fmt.Errorf("the root holds preset %s with %d GPUs and seed %q, not %s with %d and %q: --force replaces it",
			existing.Preset, len(existing.GPUs), existing.Seed, wanted.Preset, len(wanted.GPUs), wanted.Seed)
	}
}

func newDestroy(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "destroy",
		Short: "Remove a driver root and everything in it",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			root, _, err := o.open()
			if err != nil {
				return err
			}
			return root.Destroy()
		},
	}
}
