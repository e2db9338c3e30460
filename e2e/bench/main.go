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

// Command bench measures what it costs the scheduler how GPUs are published: on
// a real API server, controller manager and scheduler, with nodes that are only
// objects. Layouts are measured in turn, several rounds, so that a noisy machine
// does the same to all; what it takes of them are ratios.
//
// It knows what memslice publishes and nothing of how it prepares.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/e2e/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	// Client libraries log what this program retries.
	klog.SetLogger(logr.Discard())
	err := newCommand().ExecuteContext(ctx)
	if err == nil {
		return
	}
	outcome := "failed"
	if ctx.Err() != nil {
		outcome = "was interrupted"
	}
	fmt.Fprintf(os.Stderr, "\nbench-scheduler %s: %v\n", outcome, err)
	stop()
	os.Exit(1)
}

// options are what can be asked for.
type options struct {
	root, bin, state string
	nodes            int
	pods             int
	rounds           int
	full             []int
	layouts          []string
	limit            time.Duration
}

func (o *options) addFlags(f *pflag.FlagSet) {
	f.IntVar(&o.nodes, "nodes", 50, fmt.Sprintf("how many nodes, of %d GPUs each", gpusPerNode))
	f.IntVar(&o.pods, "pods", 100, "how many pods are placed in each measurement, fewer than there are free GPUs")
	f.IntVar(&o.rounds, "rounds", 3, "how often each layout is measured")
	f.IntSliceVar(&o.full, "full", []int{0, 4}, "measure while so many GPUs of each node are full, each in turn, ascending")
	f.StringSliceVar(&o.layouts, "layouts", nil, "which ones, the one to compare with first (default: all of the list above)")
	f.DurationVar(&o.limit, "timeout", 5*time.Minute, "how long one measurement may take")
	f.StringVar(&o.root, "root", "", "the repository (default: the one around the working directory)")
	f.StringVar(&o.bin, "bin", "", "folder of the built programs (default _output/bin in the repository)")
	f.StringVar(&o.state, "state", "", "folder of the cluster, for this run only (default _output/bench in the repository)")
}

func (o *options) validate() error {
	for _, number := range []struct {
		flag       string
		value, max int
	}{{"nodes", o.nodes, 5000}, {"pods", o.pods, 10000}, {"rounds", o.rounds, 1000}} {
		if number.value < 1 || number.value > number.max {
			return fmt.Errorf("--%s=%d: must be from 1 to %d", number.flag, number.value, number.max)
		}
	}
	if err := o.validateFull(); err != nil {
		return err
	}
	if o.limit <= 0 {
		return fmt.Errorf("--timeout=%s: must be more than 0", o.limit)
	}
	return nil
}

func (o *options) validateFull() error {
	if len(o.full) == 0 {
		return errors.New("--full: must have a number, such as 0")
	}
	for i, full := range o.full {
		if full < 0 || full >= gpusPerNode || i > 0 && full <= o.full[i-1] {
			return fmt.Errorf("--full=%d: must be from 0 to %d, and more than the one before", full, gpusPerNode-1)
		}
	}
	// One more is placed before each measurement.
	if free := o.nodes * (gpusPerNode - o.full[len(o.full)-1]); o.pods >= free {
		return fmt.Errorf("--pods=%d: must be less than the %d GPUs that --nodes and --full leave free, as some pods ask for a whole one", o.pods, free)
	}
	return nil
}

func newCommand() *cobra.Command {
	var o options
	var output string
	command := &cobra.Command{
		Use:   "bench-scheduler",
		Short: "Measure what the layout of GPUs costs the scheduler",
		Long: `bench-scheduler brings up a control plane on this machine and nodes of H100s that
are only objects, publishes them in one layout after the other, and measures how
many pods with a claim each are placed in a second. It takes down what it brought up.

Progress goes to the standard error, the result to the standard output. Compare
ratios: pods per second are those of this machine, on which everything runs.

Layouts:
` + layoutHelp(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			write, err := writer(output)
			if err != nil {
				return err
			}
			result, err := run(command.Context(), o, harness.NewSteps(command.ErrOrStderr()))
			if err != nil {
				return err
			}
			return write(command.OutOrStdout(), result)
		},
	}
	o.addFlags(command.Flags())
	command.Flags().StringVarP(&output, "output", "o", "table", "table, json or markdown")
	return command
}

func layoutHelp() string {
	var help strings.Builder
	for _, p := range publications() {
		fmt.Fprintf(&help, "  %-12s  %s\n", p.name, p.what)
	}
	return help.String()
}
