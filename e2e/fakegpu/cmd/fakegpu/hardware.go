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
	"strconv"

	"github.com/spf13/cobra"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

func newRemoveGPU(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "remove-gpu GPU",
		Short: "Take a GPU away; indexes and minor numbers behind it move",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return o.update(command, func(s *state.State) error { return s.Remove(args[0]) })
		},
	}
}

func newAddGPU(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "add-gpu GPU",
		Short: "Bring a removed GPU back, named by UUID or PCI address",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return o.update(command, func(s *state.State) error { return s.Add(args[0]) })
		},
	}
}

func newXID(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "xid GPU NUMBER",
		Short:   "Raise an XID event on a GPU",
		Example: `  fakegpu xid 3 79`,
		Args:    cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			number, err := strconv.ParseUint(args[1], 10, 16)
			if err != nil {
				return fmt.Errorf("XID %q: give a number such as 79: %w", args[1], err)
			}
			return o.update(command, func(s *state.State) error { return s.Raise(args[0], number) })
		},
	}
}

func newUnload(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "unload",
		Short: "Unload the driver: NVML fails and the device nodes go",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.update(command, func(s *state.State) error {
				s.UnloadDriver()
				return nil
			})
		},
	}
}

func newLoad(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "load",
		Short: "Load the driver",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.update(command, func(s *state.State) error {
				s.LoadDriver()
				return nil
			})
		},
	}
}
