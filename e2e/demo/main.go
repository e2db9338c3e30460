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

// Command demo shows memslice to somebody who has just cloned it: it brings up a
// cluster on this machine, applies demo/quickstart, and prints what the pods got.
// It may be run again, and leaves the cluster up.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/e2e/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	// Client libraries log what this program retries.
	klog.SetLogger(logr.Discard())
	if err := newCommand(os.LookupEnv).ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo failed: %v\n", err)
		os.Exit(1)
	}
}

func newCommand(lookup func(string) (string, bool)) *cobra.Command {
	options := harness.NewOptions(lookup)
	var output string
	var clusterOnly bool
	command := &cobra.Command{
		Use:   "demo",
		Short: "Show memslice on a cluster on this machine",
		Long: `demo brings up a real Kubernetes cluster on this machine, with simulated GPUs,
installs memslice with its Helm chart, applies demo/quickstart and prints what its
pods got. Where no kubelet can run, containers are left out, and it says so.

Progress goes to the standard error, the result to the standard output.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			write, err := writer(output)
			if err != nil {
				return err
			}
			if clusterOnly {
				_, err := up(command.Context(), options, harness.NewSteps(command.ErrOrStderr()), command.ErrOrStderr())
				return err
			}
			return run(command.Context(), options, write, command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	options.AddFlags(command.Flags())
	command.Flags().BoolVar(&clusterOnly, "cluster-only", false, "bring up the cluster with memslice on it, and no pods")
	command.Flags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return command
}

func run(ctx context.Context, options harness.Options, write func(io.Writer, *Result) error, out, progress io.Writer) error {
	steps := harness.NewSteps(progress)
	cluster, err := up(ctx, options, steps, progress)
	if err != nil {
		return err
	}
	result, err := quickstart(ctx, cluster, steps)
	if err != nil {
		return remedy(explain(ctx, cluster, err))
	}
	return write(out, result)
}

// up brings up what the quickstart needs, and says what this machine cannot do.
func up(ctx context.Context, options harness.Options, steps *harness.Steps, progress io.Writer) (*harness.Cluster, error) {
	if os.Geteuid() != 0 && options.Node != harness.NodeReal {
		fmt.Fprint(progress, "This user is not root, so no kubelet and no containers can run here. Everything else does:\n"+
			"scheduling, publishing, preparing. To see containers too, run this as root.\n\n")
	}
	cluster, err := harness.Up(ctx, options, steps)
	if err != nil {
		return nil, remedy(err)
	}
	if cluster.Emulated {
		fmt.Fprintf(progress, "    Note: no containers run here: %s\n", cluster.EmulatedWhy)
	}
	return cluster, nil
}

// remedy adds what helps where nothing more particular is known.
func remedy(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted: run it again to go on, or \"make cluster-down\" to remove what is there")
	}
	return fmt.Errorf("%w\n\nRun it again to go on from here, or start over with \"make cluster-down demo\"", err)
}
