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
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

func newLimit(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "limit",
		Short: "Look at the limits of cgroups, and meddle with them",
		Long: `limit shows which cgroups are limited in what they have of a GPU's memory.
It also sets and clears limits, as somebody else on the node could.`,
		Example: `  fakegpu limit list
  fakegpu limit set --gpu 0 --cgroup /sys/fs/cgroup/kubepods.slice --memory 4Gi
  fakegpu limit clear --gpu 0 --cgroup /sys/fs/cgroup/kubepods.slice
  fakegpu limit clear --gpu 0 --all`,
	}
	command.AddCommand(newLimitList(o), newLimitSet(o), newLimitClear(o))
	return command
}

func newLimitSet(o *options) *cobra.Command {
	gpuName, path, hard, soft := "", "", "", ""
	command := &cobra.Command{
		Use:   "set",
		Short: "Limit what a cgroup has of a GPU's memory, in place of the limit that it has",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if path == "" || hard == "" {
				return errors.New("a limit needs --cgroup PATH and --memory QUANTITY")
			}
			most, err := parseBytes("--memory", hard)
			if err != nil {
				return err
			}
			least, err := parseBytes("--guarantee", soft)
			if err != nil {
				return err
			}
			_, store, err := o.open()
			if err != nil {
				return err
			}
			cgroup, err := store.Cgroup(path)
			if err != nil {
				return fmt.Errorf("--cgroup: %w", err)
			}
			return o.updateGPU(command, gpuName, func(gpu *state.GPU) error {
				model, err := catalog.Lookup(gpu.Model)
				if err != nil {
					return err
				}
				return gpu.SetLimit(cgroup, least, most, model.MemoryBytes)
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&gpuName, "gpu", "", gpuUsage)
	flags.StringVar(&path, "cgroup", "", "the cgroup's directory (required)")
	flags.StringVar(&hard, "memory", "", "the most that it can have, for example 4Gi (required)")
	flags.StringVar(&soft, "guarantee", "0", "what it can have whatever others ask for")
	return command
}

func newLimitClear(o *options) *cobra.Command {
	gpuName, path, all := "", "", false
	command := &cobra.Command{
		Use:   "clear",
		Short: "Take the limits of cgroups on a GPU away",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if all == (path != "") {
				return errors.New("say which limits: --cgroup PATH for that of one cgroup, or --all")
			}
			return o.updateGPU(command, gpuName, func(gpu *state.GPU) error {
				left := slices.DeleteFunc(slices.Clone(gpu.Limits), func(l state.Limit) bool { return all || l.Cgroup.Path == path })
				if !all && len(left) == len(gpu.Limits) {
					return fmt.Errorf("GPU %s has no limit of cgroup %s: 'fakegpu limit list' shows those that there are", gpu.UUID, path)
				}
				gpu.Limits = left
				return nil
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&gpuName, "gpu", "", gpuUsage)
	flags.StringVar(&path, "cgroup", "", "a cgroup, by the path that the list shows")
	flags.BoolVar(&all, "all", false, "all limits on the GPU")
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
	fmt.Fprintln(table, "GPU\tLIMIT\tGUARANTEE\tUSED\tCGROUP")
	quantity := func(bytes uint64) string { return resource.NewQuantity(int64(bytes), resource.BinarySI).String() }
	for _, l := range limits {
		hard := "none"
		if l.Hard != state.Unlimited {
			hard = quantity(l.Hard)
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", l.GPU, hard, quantity(l.Soft), quantity(l.Used), l.Cgroup.Path)
	}
	return table.Flush()
}
