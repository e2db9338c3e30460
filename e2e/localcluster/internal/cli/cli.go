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

// Package cli is the command line of localcluster: flags, help, and the forms in
// which results are printed.
package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/memslice/memslice/e2e/localcluster/internal/cluster"
	"github.com/memslice/memslice/e2e/localcluster/internal/host"
)

// location is where a cluster and its programs are.
type location struct{ dir, bin string }

func (l *location) open(cmd *cobra.Command) (*cluster.Cluster, error) {
	return cluster.New(l.dir, l.bin, cmd.ErrOrStderr())
}

// New returns the command.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "localcluster",
		Short: "A real Kubernetes cluster on this machine",
		Long: `localcluster runs a real Kubernetes cluster on this machine: etcd, API server,
controller manager, scheduler, and one node with kubelet and containerd. It needs
no Docker, no image registry and no network: everything listens on 127.0.0.1.

All that it writes is in one folder, and "down" leaves nothing of it: no process,
mount, network link, cgroup or file. Another Kubernetes on the machine is not
disturbed: the node has a mount namespace, a cgroup and ports of its own.

The node needs root. Without root, or where a kubelet cannot run, only the
control plane is brought up, and "up" says why.`,
		SilenceUsage: true,
	}
	at := &location{}
	bin := beside()
	root.PersistentFlags().StringVar(&at.dir, "dir", filepath.Join(bin, "..", "cluster"), "folder of the cluster")
	root.PersistentFlags().StringVar(&at.bin, "bin", bin, "folder of the programs to run")
	must(root.MarkPersistentFlagDirname("dir"))
	must(root.MarkPersistentFlagDirname("bin"))
	root.AddCommand(up(at), down(at), status(at), loadImage(at), logs(at))
	return root
}

// beside is the folder of this program, where the others are built too: whoever
// calls it need not be in a particular folder.
func beside() string {
	self, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(self)
}

// must is for errors that only a mistake in this package can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func up(at *location) *cobra.Command {
	var nodeName, gates, runtimeConfig, version, node string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the cluster up, or complete one that is half up",
		Long: `Brings the cluster up. When it is up already, this says so and does nothing; when
a component has died, it is started again. Settings hold until "down": giving
another value for one is an error.`,
		Example: `  localcluster up
  localcluster up --feature-gates=GenericWorkload=true --runtime-config=scheduling.k8s.io/v1beta1=true`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&nodeName, "node-name", cluster.DefaultNodeName, "name of the node; it must resolve to a loopback address")
	f.StringVar(&gates, "feature-gates", "", "feature gates of every component, as Name=true,Other=false")
	f.StringVar(&runtimeConfig, "runtime-config", "", "APIs to turn on or off, as the API server's flag")
	f.StringVar(&version, "kubernetes-version", "", "refuse to run another version than this, such as 1.37.2")
	f.StringVar(&node, "node", string(host.Auto), "auto, real (fail if there can be none) or none (control plane only)")
	f.DurationVar(&timeout, "timeout", 2*time.Minute, "how long each component may take to become ready")
	must(cmd.RegisterFlagCompletionFunc("node", cobra.FixedCompletions(
		[]string{string(host.Auto), string(host.Real), string(host.None)}, cobra.ShellCompDirectiveNoFileComp)))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := at.open(cmd)
		if err != nil {
			return err
		}
		mode := host.Mode(node)
		return c.Up(cmd.Context(), cluster.Options{
			NodeName:          given(cmd, "node-name", &nodeName),
			FeatureGates:      given(cmd, "feature-gates", &gates),
			RuntimeConfig:     given(cmd, "runtime-config", &runtimeConfig),
			KubernetesVersion: given(cmd, "kubernetes-version", &version),
			Node:              given(cmd, "node", &mode),
			Timeout:           timeout,
		})
	}
	return cmd
}

// given returns nil for a flag that was left at its default.
func given[T any](cmd *cobra.Command, flag string, value *T) *T {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return value
}

func down(at *location) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the cluster and remove everything that it made",
		Long: `Ends the cluster and removes everything that it made on the machine and its folder.
It works in every state: half up, after a crash or a reboot, or when there is no
cluster. It also ends every other process that has MEMSLICE_CLUSTER=<folder> in
its environment.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := at.open(cmd)
			if err != nil {
				return err
			}
			return c.Down(cmd.Context())
		},
	}
}

func loadImage(at *location) *cobra.Command {
	return &cobra.Command{
		Use:   "load-image FILE.tar...",
		Short: "Put container images on the node",
		Long: `Imports images from archives as "docker save" and mkimage write them. Pods refer to
an image by its full name (docker.io/memslice/demo:dev) with imagePullPolicy Never
or IfNotPresent.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			c, err := at.open(cmd)
			if err != nil {
				return err
			}
			for _, file := range files {
				if err := c.LoadImage(cmd.Context(), file); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func logs(at *location) *cobra.Command {
	var lines int
	cmd := &cobra.Command{
		Use:   "logs COMPONENT",
		Short: "Print a component's log",
		Args:  cobra.ExactArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			c, err := at.open(cmd)
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			names, err := c.Logs()
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := at.open(cmd)
			if err != nil {
				return err
			}
			text, err := c.Log(args[0], lines)
			if err != nil {
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), text)
			return nil
		},
	}
	cmd.Flags().IntVarP(&lines, "lines", "n", 0, "print only the last lines; 0 prints all")
	return cmd
}
