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
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// migInstance is a GPU instance as the list shows it, once for each of its
// compute instances, or once without any.
type migInstance struct {
	GPU         int    `json:"gpu"`
	GPUUUID     string `json:"gpuUUID"`
	GPUInstance int    `json:"gpuInstance"`
	Profile     string `json:"profile"`
	// Start and Size are memory slices.
	Start int `json:"start"`
	Size  int `json:"size"`
	// ComputeInstance and UUID are absent for an instance without any.
	ComputeInstance *int            `json:"computeInstance,omitempty"`
	UUID            string          `json:"uuid,omitempty"`
	Processes       []state.Process `json:"processes,omitempty"`
}

func newMIGList(o *options) *cobra.Command {
	return newShow(o, "list", "List GPU instances and what is in them", migInstances, printInstances)
}

func migInstances(s *state.State) ([]migInstance, error) {
	all := []migInstance{}
	for index, gpu := range s.Present() {
		for i := range gpu.Instances {
			instance := &gpu.Instances[i]
			entry, err := describeInstance(gpu, instance)
			if err != nil {
				return nil, err
			}
			entry.GPU = index
			if len(instance.Compute) == 0 {
				all = append(all, entry)
			}
			for _, compute := range instance.Compute {
				entry.ComputeInstance, entry.UUID, entry.Processes = &compute.ID, compute.UUID, gpu.ProcessesIn(compute.UUID)
				all = append(all, entry)
			}
		}
	}
	return all, nil
}

func describeInstance(gpu *state.GPU, instance *state.GPUInstance) (migInstance, error) {
	model, err := catalog.Lookup(gpu.Model)
	if err != nil {
		return migInstance{}, err
	}
	profile, ok := model.MIG.ByID(instance.Profile)
	if !ok {
		return migInstance{}, fmt.Errorf("GPU instance %d of GPU %s has profile %d, which a %s lacks",
			instance.ID, gpu.UUID, instance.Profile, model.Name)
	}
	return migInstance{
		GPUUUID: gpu.UUID, GPUInstance: instance.ID,
		Profile: profile.Name, Start: instance.Start, Size: profile.MemorySlices,
	}, nil
}

func printInstances(out io.Writer, instances []migInstance) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "GPU\tINSTANCE\tPROFILE\tPLACEMENT\tCOMPUTE\tUUID\tPROCESSES")
	for _, i := range instances {
		compute, uuid := "-", "-"
		if i.ComputeInstance != nil {
			compute, uuid = fmt.Sprint(*i.ComputeInstance), i.UUID
		}
		fmt.Fprintf(table, "%d\t%d\t%s\t%d:%d\t%s\t%s\t%s\n",
			i.GPU, i.GPUInstance, i.Profile, i.Start, i.Size, compute, uuid, processNames(i.Processes))
	}
	return table.Flush()
}

func processNames(processes []state.Process) string {
	if len(processes) == 0 {
		return "-"
	}
	names := make([]string, len(processes))
	for i, p := range processes {
		names[i] = fmt.Sprintf("%d(%s)", p.PID, p.Name)
	}
	return strings.Join(names, ",")
}
