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

func newProcess(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "process",
		Short: "Put processes on GPUs, and take them away",
		Long: `process says which processes NVML reports on a GPU and in its MIG instances.
They need not exist. While one is there, MIG modes and instances stay.`,
		Example: `  fakegpu process add --gpu 0 --pid 4711 --name python --memory 1Gi
  fakegpu process add --gpu 1 --instance MIG-... --pid 4712 --name python
  fakegpu process remove --gpu 0 --pid 4711`,
	}
	command.AddCommand(newProcessAdd(o), newProcessRemove(o), newProcessList(o))
	return command
}

func newProcessAdd(o *options) *cobra.Command {
	gpuName, memory, process := "", "", state.Process{}
	command := &cobra.Command{
		Use:   "add",
		Short: "Let a process use a GPU, or one of its MIG instances",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if process.PID == 0 || process.Name == "" {
				return errors.New("a process needs --pid NUMBER and --name NAME")
			}
			var err error
			if process.MemoryBytes, err = parseBytes("--memory", memory); err != nil {
				return err
			}
			return o.updateGPU(command, gpuName, func(gpu *state.GPU) error { return gpu.AddProcess(process) })
		},
	}
	flags := command.Flags()
	flags.StringVar(&gpuName, "gpu", "", gpuUsage)
	flags.StringVar(&process.Instance, "instance", "", "the UUID of the MIG device that it runs in")
	flags.Uint32Var(&process.PID, "pid", 0, "the process' id (required)")
	flags.StringVar(&process.Name, "name", "", "the process' name (required)")
	flags.StringVar(&memory, "memory", "0", "the GPU memory that it has, for example 1Gi")
	return command
}

// parseBytes reads the memory that a flag says.
func parseBytes(flag, text string) (uint64, error) {
	quantity, err := resource.ParseQuantity(text)
	if err != nil || quantity.Sign() < 0 {
		return 0, fmt.Errorf("%s %q: write a quantity such as 512Mi or 1Gi", flag, text)
	}
	return uint64(quantity.Value()), nil
}

func newProcessRemove(o *options) *cobra.Command {
	gpuName, pid := "", uint32(0)
	command := &cobra.Command{
		Use:   "remove",
		Short: "End a process' use of a GPU and its MIG instances",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.updateGPU(command, gpuName, func(gpu *state.GPU) error { return gpu.RemoveProcess(pid) })
		},
	}
	command.Flags().StringVar(&gpuName, "gpu", "", gpuUsage)
	command.Flags().Uint32Var(&pid, "pid", 0, "the process' id (required)")
	return command
}

// gpuProcess is a process as the list shows it.
type gpuProcess struct {
	GPU     int    `json:"gpu"`
	GPUUUID string `json:"gpuUUID"`
	state.Process
}

func newProcessList(o *options) *cobra.Command {
	return newShow(o, "list", "List the processes on all GPUs", gpuProcesses, printProcesses)
}

func gpuProcesses(s *state.State) ([]gpuProcess, error) {
	all := []gpuProcess{}
	for index, gpu := range s.Present() {
		for _, p := range gpu.Processes {
			all = append(all, gpuProcess{index, gpu.UUID, p})
		}
	}
	return all, nil
}

func printProcesses(out io.Writer, processes []gpuProcess) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "GPU\tPID\tNAME\tMEMORY\tON")
	for _, p := range processes {
		on := p.GPUUUID
		if p.Instance != "" {
			on = p.Instance
		}
		fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\n", p.GPU, p.PID, p.Name,
			resource.NewQuantity(int64(p.MemoryBytes), resource.BinarySI), on)
	}
	return table.Flush()
}
