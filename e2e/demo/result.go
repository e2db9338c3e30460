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
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

// Result is what the demo shows. Its JSON form is for scripts.
type Result struct {
	KubernetesVersion string `json:"kubernetesVersion"`
	Kubeconfig        string `json:"kubeconfig"`
	Namespace         string `json:"namespace"`
	// NoContainers is why no containers run; empty where they do.
	NoContainers string `json:"noContainers,omitempty"`
	Pods         []Row  `json:"pods"`

	kubectl string // path of the one that was built
}

// Row is one pod.
type Row struct {
	Pod     string  `json:"pod"`
	Node    string  `json:"node"`
	Device  string  `json:"device"`
	GPU     GPU     `json:"gpu"`
	Granted Granted `json:"granted"`
	Sees    Sees    `json:"sees"`
}

// GPU is where the pod's share is.
type GPU struct {
	UUID    string `json:"uuid"`
	ID      string `json:"id"` // its short name
	Product string `json:"product"`
}

// Granted is the amount of memory in the claim's allocation.
type Granted struct {
	Bytes    int64  `json:"bytes"`
	Quantity string `json:"quantity"`
}

// Sees is what the pod's container finds.
type Sees struct {
	MemoryBytes int64    `json:"memoryBytes"`
	UUID        string   `json:"uuid"`
	DeviceNodes []string `json:"deviceNodes"`
}

// writer returns how to write a result in a format.
func writer(format string) (func(io.Writer, *Result) error, error) {
	switch format {
	case "table":
		return writeTable, nil
	case "json":
		return func(w io.Writer, r *Result) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(r)
		}, nil
	case "yaml":
		return func(w io.Writer, r *Result) error {
			text, err := yaml.Marshal(r)
			if err != nil {
				return err
			}
			_, err = w.Write(text)
			return err
		}, nil
	}
	return nil, fmt.Errorf("--output=%s: must be table, json or yaml", format)
}

func writeTable(w io.Writer, r *Result) error {
	sees := "CONTAINER SEES"
	if r.NoContainers != "" {
		sees = "CONTAINER WOULD SEE"
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "\nPOD\tNODE\tGPU\tGRANTED\t%s\n", sees)
	for _, row := range r.Pods {
		id := "-"
		if row.Sees.UUID == row.GPU.UUID {
			id = "GPU-" + row.GPU.ID + "-…"
		}
		fmt.Fprintf(table, "%s\t%s\t%s  %s\t%s\t%d bytes of %s, %s\n", row.Pod, row.Node, row.GPU.ID, row.GPU.Product,
			row.Granted.Quantity, row.Sees.MemoryBytes, id, strings.Join(row.Sees.DeviceNodes, " "))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, r.advice())
	return err
}

// advice is what to do next.
func (r *Result) advice() string {
	var text strings.Builder
	if r.NoContainers != "" {
		fmt.Fprintf(&text, "\nNo container ran: %s.\nThe scheduler, the plugin and its CDI specs are real; the last column is what they would give a container.\n", r.NoContainers)
	}
	kubectl := "kubectl"
	if _, err := exec.LookPath(kubectl); err != nil {
		kubectl = r.kubectl
	}
	fmt.Fprintf(&text, "\nThe cluster (Kubernetes %s) stays up. To look around:\n    export KUBECONFIG=%s\n", r.KubernetesVersion, r.Kubeconfig)
	commands := []string{"get resourceslices -o yaml", "-n " + r.Namespace + " get pods,resourceclaims"}
	if r.NoContainers == "" {
		commands = append(commands, "-n "+r.Namespace+" exec deployment/"+deployment+" -- env")
	}
	for _, command := range commands {
		fmt.Fprintf(&text, "    %s %s\n", kubectl, command)
	}
	text.WriteString("To stop it:\n    make cluster-down\n")
	return text.String()
}
