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
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

func newSet(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "set",
		Short: "Break and mend GPUs and the library",
	}
	command.AddCommand(newSetGPU(o), newSetLibrary(o))
	return command
}

type gpuChange struct {
	fail, clear []string
	clearAll    bool
	lost, mig   bool
}

func newSetGPU(o *options) *cobra.Command {
	change := &gpuChange{}
	command := &cobra.Command{
		Use:   "gpu GPU",
		Short: "Change one GPU, named by index, UUID or PCI address",
		Long: `gpu changes what one GPU answers.

Queries that can be made to fail:
` + wrap(state.Queries()),
		Example: `  fakegpu set gpu 3 --fail memoryInfo=UNKNOWN --fail migMode=NOT_SUPPORTED
  fakegpu set gpu 3 --fail 'createComputeInstance=UNKNOWN*1'
  fakegpu set gpu 3 --clear memoryInfo
  fakegpu set gpu 0000:1b:00.0 --lost
  fakegpu set gpu 0 --lost=false`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if command.Flags().NFlag() == 0 || command.Flags().NFlag() == 1 && command.Flags().Changed("root") {
				return errors.New("nothing to change: see 'fakegpu set gpu --help'")
			}
			return o.update(command, func(s *state.State) error {
				gpu, err := s.Find(args[0])
				if err != nil {
					return err
				}
				return change.apply(command, gpu)
			})
		},
	}
	flags := command.Flags()
	flags.StringArrayVar(&change.fail, "fail", nil, "QUERY=ERROR or QUERY=ERROR*TIMES: let a query fail with an NVML error, until it is cleared or that often (repeatable)")
	flags.StringArrayVar(&change.clear, "clear", nil, "QUERY: let a query succeed again (repeatable)")
	flags.BoolVar(&change.clearAll, "clear-failures", false, "let every query succeed again")
	flags.BoolVar(&change.lost, "lost", false, "let the GPU fall off the bus; --lost=false brings it back")
	flags.BoolVar(&change.mig, "mig", false, "turn MIG mode on, without a reset and whatever uses the GPU; --mig=false turns it off")
	return command
}

func (c *gpuChange) apply(command *cobra.Command, gpu *state.GPU) error {
	if c.clearAll {
		gpu.ClearFailures()
	}
	for _, name := range c.clear {
		query, err := state.ParseQuery(name)
		if err != nil {
			return fmt.Errorf("--clear: %w", err)
		}
		gpu.Clear(query)
	}
	for _, text := range c.fail {
		if err := injectFailure(gpu, text); err != nil {
			return fmt.Errorf("--fail %q: %w", text, err)
		}
	}
	if command.Flags().Changed("lost") {
		gpu.Lost = c.lost
	}
	if command.Flags().Changed("mig") {
		return c.setMIG(gpu)
	}
	return nil
}

// setMIG sets the mode without the conditions that 'fakegpu mig' keeps to.
func (c *gpuChange) setMIG(gpu *state.GPU) error {
	model, err := catalog.Lookup(gpu.Model)
	if err != nil {
		return err
	}
	if model.MIG == nil {
		return fmt.Errorf("--mig: GPU %s is a %s, which has no MIG", gpu.UUID, model.Name)
	}
	if !c.mig && len(gpu.Instances) > 0 {
		return fmt.Errorf("--mig=false: GPU %s has instances: 'fakegpu mig destroy --gpu %s --instance all' destroys them", gpu.UUID, gpu.UUID)
	}
	gpu.MIG = state.MIGMode{Current: c.mig, Pending: c.mig}
	return nil
}

// injectFailure parses QUERY=ERROR or QUERY=ERROR*TIMES.
func injectFailure(gpu *state.GPU, text string) error {
	name, failure, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("write QUERY=ERROR, for example memoryInfo=UNKNOWN")
	}
	query, err := state.ParseQuery(name)
	if err != nil {
		return err
	}
	failure, count, counted := strings.Cut(failure, "*")
	result, err := state.ParseResult(failure)
	if err != nil {
		return err
	}
	if result == state.Success {
		return fmt.Errorf("--clear %s lets a query succeed", query)
	}
	if !counted {
		gpu.Fail(query, result)
		return nil
	}
	times, err := strconv.Atoi(count)
	if err != nil || times < 1 {
		return fmt.Errorf("%q is no number of times: write 1 or more", count)
	}
	gpu.FailTimes(query, result, times)
	return nil
}

func newSetLibrary(o *options) *cobra.Command {
	return &cobra.Command{
		Use:       "library present|absent",
		Short:     "Take libnvidia-ml.so.1 out of the root, or put it back",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"present", "absent"},
		RunE: func(command *cobra.Command, args []string) error {
			return o.update(command, func(s *state.State) error {
				s.Driver.LibraryAbsent = args[0] == "absent"
				return nil
			})
		},
	}
}

// wrap lists queries, a few a line.
func wrap(queries []state.Query) string {
	var text strings.Builder
	for i, query := range queries {
		switch {
		case i == 0:
			text.WriteString("  ")
		case i%4 == 0:
			text.WriteString(",\n  ")
		default:
			text.WriteString(", ")
		}
		text.WriteString(string(query))
	}
	return text.String()
}
