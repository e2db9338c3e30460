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

// The memslice kubelet plugin: the node part of the DRA driver
// gpu.memslice.dev.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/config"
	"github.com/memslice/memslice/pkg/driver"
	"github.com/memslice/memslice/pkg/probe"
)

// version is set at link time.
var version = "dev"

func main() { os.Exit(cli.Run(newCommand())) }

func newCommand() *cobra.Command {
	cfg := config.Default()
	logging := logsapi.NewLoggingConfiguration()
	cmd := &cobra.Command{
		Use:   "memslice-kubelet-plugin",
		Short: "Shares the GPUs of a node by the amount of memory that pods ask for",
		Long: `memslice-kubelet-plugin is the node part of the DRA driver gpu.memslice.dev.
It publishes the node's GPUs as ResourceSlices and prepares the ResourceClaims
that the scheduler places on them.

Every flag can also be given as an environment variable: --node-name is
` + config.EnvName("node-name") + `. A flag wins over a variable.`,
		Version:      version,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := complete(cmd.Flags(), cfg); err != nil {
				return fmt.Errorf("configuration: %w", err)
			}
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return fmt.Errorf("set up logging: %w", err)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			logger := klog.FromContext(ctx)
			logger.Info("Starting", "version", version, "config", cfg)
			err := driver.Run(ctx, cfg)
			logger.Info("Stopping")
			return err
		},
	}
	cfg.AddFlags(cmd.Flags())
	logsapi.AddFlags(logging, cmd.Flags())
	cmd.AddCommand(newProbeCommand())
	return cmd
}

// complete is cfg with what the environment says and follows from both, so far
// right. The node's labels, by which its NodeConfig is chosen, are not known yet.
func complete(fs *pflag.FlagSet, cfg *config.Config) error {
	if err := config.FromEnvironment(fs, os.LookupEnv); err != nil {
		return err
	}
	cfg.Complete()
	if err := cfg.Validate(); err != nil {
		return err
	}
	_, err := cfg.LoadNodeConfig(nil)
	return err
}

// newProbeCommand is what the pod's exec probes run. It finds the plugin by
// settings that both are given.
func newProbeCommand() *cobra.Command {
	place := config.DefaultPlace()
	var service string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:          "probe",
		Short:        "Ask the running plugin whether it is healthy",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.FromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return fmt.Errorf("configuration: %w", err)
			}
			if err := place.Validate(); err != nil {
				return fmt.Errorf("configuration: %w", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return probe.Ask(ctx, place.HealthSocket(), service)
		},
	}
	cmd.Flags().StringVar(&service, "service", probe.Liveness, "what to ask for: "+probe.Liveness+" or "+probe.Readiness)
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "how long to wait for an answer")
	place.AddFlags(cmd.Flags())
	return cmd
}
