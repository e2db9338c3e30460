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
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

func newState(o *options) *cobra.Command {
	return newShow(o, "state", "Show the simulated GPUs and what is wrong with them",
		func(s *state.State) (*state.State, error) { return s, nil }, printTable)
}

// newShow is a command that prints something of the state, as a table or JSON.
func newShow[T any](o *options, use, short string, of func(*state.State) (T, error), table func(io.Writer, T) error) *cobra.Command {
	var format string
	command := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, store, err := o.open()
			if err != nil {
				return err
			}
			current, err := store.Load()
			if err != nil {
				return err
			}
			value, err := of(current)
			if err != nil {
				return err
			}
			return printAs(command.OutOrStdout(), format, value, func(out io.Writer) error { return table(out, value) })
		},
	}
	command.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	return command
}

// printAs prints a value in the format that was asked for.
func printAs(out io.Writer, format string, value any, table func(io.Writer) error) error {
	switch format {
	case "table":
		return table(out)
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	default:
		return fmt.Errorf("unknown output %q: use table or json", format)
	}
}

func printTable(out io.Writer, s *state.State) error {
	loaded := "loaded"
	if !s.Driver.Loaded {
		loaded = "NOT LOADED"
	}
	if s.Driver.LibraryAbsent {
		loaded += ", libnvidia-ml.so.1 ABSENT"
	}
	fmt.Fprintf(out, "Preset %s, driver %s (CUDA %d.%d), %s\n",
		s.Preset, s.Driver.Version, s.Driver.CUDA/1000, s.Driver.CUDA%1000/10, loaded)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "INDEX\tMINOR\tUUID\tPRODUCT\tMEMORY\tRESERVED\tPCI\tNUMA\tMIG\tPROCESSES\tCONDITION")
	for i := range s.GPUs {
		gpu := &s.GPUs[i]
		model, err := catalog.Lookup(gpu.Model)
		if err != nil {
			return err
		}
		index, minor := "-", "-"
		if n, ok := s.Index(gpu.UUID); ok {
			index, minor = fmt.Sprint(n), fmt.Sprint(gpu.Minor)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%dMi\t%dMi\t%s\t%d\t%s\t%d\t%s\n", index, minor, gpu.UUID, model.Name,
			model.MemoryBytes/catalog.MiB, model.ReservedBytes/catalog.MiB, gpu.BusID, gpu.NUMANode,
			migText(model, gpu), len(gpu.Processes), condition(gpu))
	}
	return table.Flush()
}

func migText(model *catalog.Model, gpu *state.GPU) string {
	if model.MIG == nil {
		return "-"
	}
	text := onOff(gpu.MIG.Current)
	if count := len(gpu.Instances); count > 0 {
		text += fmt.Sprintf(", instances: %d", count)
	}
	if gpu.MIG.Current != gpu.MIG.Pending {
		text += " (pending " + onOff(gpu.MIG.Pending) + ")"
	}
	return text
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func condition(gpu *state.GPU) string {
	var parts []string
	if gpu.Removed {
		parts = append(parts, "removed")
	}
	if gpu.Lost {
		parts = append(parts, "lost")
	}
	for query, result := range gpu.Failures {
		text := fmt.Sprintf("%s=%s", query, result)
		if left, counted := gpu.FailuresLeft[query]; counted {
			text += fmt.Sprintf("*%d", left)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "ok"
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
