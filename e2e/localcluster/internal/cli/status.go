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

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/memslice/memslice/e2e/localcluster/internal/cluster"
)

func status(at *location) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how the cluster is and where its parts are",
		Long: `Prints the cluster's state and what one has to know to use it. It fails when the
cluster is not up.`,
		Example: `  localcluster status
  localcluster status -o json
  eval "$(localcluster status -o env)"    # KUBECONFIG, KUBELET_ROOT_DIR, …`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json or env (shell variables)")
	formats := []string{"table", "json", "env"}
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := at.open(cmd)
		if err != nil {
			return err
		}
		status, err := c.Status(cmd.Context())
		if err != nil {
			return err
		}
		if err := printStatus(cmd.OutOrStdout(), output, status); err != nil {
			return err
		}
		if !status.Up {
			return errors.New("the cluster is not up: " + status.Problem)
		}
		return nil
	}
	return cmd
}

func printStatus(w io.Writer, format string, s cluster.Status) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(s)
	case "env":
		for _, v := range variables(s) {
			fmt.Fprintf(w, "export %s=%s\n", v[0], quote(v[1]))
		}
		return nil
	case "table":
		return printTable(w, s)
	}
	return fmt.Errorf("--output=%s: must be table, json or env", format)
}

func variables(s cluster.Status) [][2]string {
	return [][2]string{
		{"KUBECONFIG", s.Kubeconfig},
		{"NODE_NAME", s.NodeName},
		{"NODE", string(s.Node)},
		{"KUBELET_ROOT_DIR", s.KubeletRootDir},
		{"CDI_DIR", s.CDIDir},
		{"API_SERVER_HOST", s.APIServerHost},
		{"API_SERVER_PORT", strconv.Itoa(s.APIServerPort)},
		{"CONTAINERD_SOCKET", s.ContainerdSocket},
		{"LOG_DIR", s.LogDir},
	}
}

// quote makes a word that a shell takes literally.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func printTable(w io.Writer, s cluster.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "kubernetes\t%s\n", s.KubernetesVersion)
	fmt.Fprintf(t, "api server\thttps://%s:%d\n", s.APIServerHost, s.APIServerPort)
	fmt.Fprintf(t, "kubeconfig\t%s\n", s.Kubeconfig)
	if s.NodeReason == "" {
		fmt.Fprintf(t, "node\t%s\n", s.NodeName)
	} else {
		fmt.Fprintf(t, "node\tnone: %s\n", s.NodeReason)
	}
	fmt.Fprintf(t, "kubelet root\t%s\n", s.KubeletRootDir)
	fmt.Fprintf(t, "CDI specs\t%s\n", s.CDIDir)
	fmt.Fprintf(t, "logs\t%s\n", s.LogDir)
	fmt.Fprintf(t, "\nCOMPONENT\tPID\tSTATE\n")
	for _, c := range s.Components {
		pid, state := "-", "ready"
		if c.PID != 0 {
			pid = strconv.Itoa(c.PID)
		}
		if !c.Ready {
			state = c.Problem
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Name, pid, state)
	}
	return t.Flush()
}
