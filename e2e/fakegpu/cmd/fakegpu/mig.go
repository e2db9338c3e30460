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

// gpuUsage describes the flag by which commands about MIG and processes name a
// GPU.
const gpuUsage = "the GPU, by index, UUID or PCI address (required)"

func newMIG(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "mig",
		Short: "Partition GPUs, as an administrator does with nvidia-smi",
		Example: `  fakegpu mig enable --gpu 0
  fakegpu mig create --gpu 0 --profile 1g.10gb --start 3
  fakegpu mig list
  fakegpu mig destroy --gpu 0 --instance all
  fakegpu mig disable --gpu 0`,
	}
	command.AddCommand(newMIGMode(o, "enable", true), newMIGMode(o, "disable", false),
		newMIGCreate(o), newMIGDestroy(o), newMIGList(o))
	return command
}

func newMIGMode(o *options, verb string, on bool) *cobra.Command {
	gpuName := ""
	command := &cobra.Command{
		Use:   verb,
		Short: "Turn MIG mode " + onOff(on) + ", on a GPU that nothing uses",
		Long: verb + ` turns a GPU's MIG mode ` + onOff(on) + `. A GPU with processes or instances keeps its
mode. Before Hopper, the new mode is pending until 'fakegpu reset'.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.updateGPU(command, gpuName, func(gpu *state.GPU) error {
				activation, err := gpu.SetMIGMode(on)
				if err != nil {
					return err
				}
				var refusal *state.Refusal
				if errors.As(activation, &refusal) && refusal.Result == state.ResetRequired {
					fmt.Fprintf(command.OutOrStdout(), "MIG mode is pending: %s\n", refusal.Reason)
					return nil
				}
				return activation
			})
		},
	}
	command.Flags().StringVar(&gpuName, "gpu", "", gpuUsage)
	return command
}

type migCreate struct {
	gpu, profile string
	start        int
	noCompute    bool
}

func newMIGCreate(o *options) *cobra.Command {
	c := &migCreate{}
	command := &cobra.Command{
		Use:   "create",
		Short: "Make a GPU instance, with a compute instance of its full size",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.updateGPU(command, c.gpu, func(gpu *state.GPU) error { return c.run(command, gpu) })
		},
	}
	flags := command.Flags()
	flags.StringVar(&c.gpu, "gpu", "", gpuUsage)
	flags.StringVar(&c.profile, "profile", "", "the instance's profile, for example 1g.10gb (required)")
	flags.IntVar(&c.start, "start", 0, "the first memory slice (default: the driver chooses)")
	flags.BoolVar(&c.noCompute, "no-compute", false, "leave the GPU instance without a compute instance")
	return command
}

func (c *migCreate) run(command *cobra.Command, gpu *state.GPU) error {
	profile, err := migProfile(gpu, c.profile)
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	start := c.start
	if !command.Flags().Changed("start") {
		if start, err = gpu.PlaceInstance(profile.ID); err != nil {
			return err
		}
	}
	instance, err := gpu.CreateInstance(profile.ID, start)
	if err != nil {
		return err
	}
	if c.noCompute {
		fmt.Fprintf(command.OutOrStdout(), "GPU instance %d\n", instance.ID)
		return nil
	}
	compute, err := gpu.CreateFullCompute(instance)
	if err != nil {
		return err
	}
	fmt.Fprintf(command.OutOrStdout(), "GPU instance %d: %s\n", instance.ID, compute.UUID)
	return nil
}

// migProfile finds a profile of a GPU by its name.
func migProfile(gpu *state.GPU, name string) (*catalog.Profile, error) {
	model, err := catalog.Lookup(gpu.Model)
	if err != nil {
		return nil, err
	}
	if model.MIG == nil {
		return nil, fmt.Errorf("GPU %s is a %s, which has no MIG", gpu.UUID, model.Name)
	}
	names := make([]string, len(model.MIG.Profiles))
	for i := range model.MIG.Profiles {
		profile := &model.MIG.Profiles[i]
		if profile.Name == name {
			return profile, nil
		}
		names[i] = profile.Name
	}
	return nil, fmt.Errorf("a %s has no profile %q: use one of %s", model.Name, name, strings.Join(names, ", "))
}

func newMIGDestroy(o *options) *cobra.Command {
	gpuName, name := "", ""
	command := &cobra.Command{
		Use:   "destroy",
		Short: "Destroy a GPU instance, or all, with their compute instances",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.updateGPU(command, gpuName, func(gpu *state.GPU) error {
				ids, err := instanceIDs(gpu, name)
				if err != nil {
					return fmt.Errorf("--instance: %w", err)
				}
				for _, id := range ids {
					if err := gpu.DestroyWithCompute(id); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	command.Flags().StringVar(&gpuName, "gpu", "", gpuUsage)
	command.Flags().StringVar(&name, "instance", "", "the GPU instance's id, or all (required)")
	return command
}

// instanceIDs resolves the id of a GPU instance, or "all".
func instanceIDs(gpu *state.GPU, name string) ([]int, error) {
	if name == "all" {
		var ids []int
		for _, instance := range gpu.Instances {
			ids = append(ids, instance.ID)
		}
		return ids, nil
	}
	id, err := strconv.Atoi(name)
	if err != nil {
		return nil, fmt.Errorf("%q is no id: give the number that 'fakegpu mig list' shows, or all", name)
	}
	return []int{id}, nil
}

func newReset(o *options) *cobra.Command {
	gpuName := ""
	command := &cobra.Command{
		Use:   "reset",
		Short: "Reset an idle GPU: its pending MIG mode is in force, its instances are lost",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.updateGPU(command, gpuName, (*state.GPU).Reset)
		},
	}
	command.Flags().StringVar(&gpuName, "gpu", "", gpuUsage)
	return command
}
