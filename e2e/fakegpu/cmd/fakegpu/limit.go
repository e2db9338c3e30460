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
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

func newLimit(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "limit",
		Short: "Look at the limits of cgroups, and take them away",
		Example: `  fakegpu limit list
  fakegpu limit clear --gpu 0 --all`,
	}
	command.AddCommand(newLimitList(o), newLimitClear(o))
	return command
}

func newLimitClear(o *options) *cobra.Command {
	gpuName, all := "", false
	command := &cobra.Command{
		Use:   "clear",
		Short: "Take the limits of cgroups on a GPU away, as somebody else on the node could",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if !all {
				return errors.New("say that it is to be --all limits on the GPU")
			}
			return o.updateGPU(command, gpuName, func(gpu *state.GPU) error {
				gpu.Limits = nil
				return nil
			})
		},
	}
	command.Flags().StringVar(&gpuName, "gpu", "", gpuUsage)
	command.Flags().BoolVar(&all, "all", false, "all limits on the GPU (required)")
	return command
}

// gpuLimit is a limit as the list shows it.
type gpuLimit struct {
	GPU     int    `json:"gpu"`
	GPUUUID string `json:"gpuUUID"`
	Used    uint64 `json:"used"`
	state.Limit
}

func newLimitList(o *options) *cobra.Command {
	return newShow(o, "list", "List the limits of cgroups on all GPUs", gpuLimits, printLimits)
}

func gpuLimits(s *state.State) ([]gpuLimit, error) {
	all := []gpuLimit{}
	for index, gpu := range s.Present() {
		for _, l := range gpu.Limits {
			_, used, _ := gpu.LimitOf(l.Cgroup)
			all = append(all, gpuLimit{index, gpu.UUID, used, l})
		}
	}
	return all, nil
}

func printLimits(out io.Writer, limits []gpuLimit) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "GPU\tLIMIT\tUSED\tCGROUP")
	quantity := func(bytes uint64) *resource.Quantity { return resource.NewQuantity(int64(bytes), resource.BinarySI) }
	for _, l := range limits {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", l.GPU, quantity(l.Hard), quantity(l.Used), l.Cgroup.Path)
	}
	return table.Flush()
}
