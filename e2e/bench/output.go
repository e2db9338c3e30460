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
	"strings"
	"text/tabwriter"
)

// writer returns what writes a result in the given form.
func writer(output string) (func(io.Writer, *Result) error, error) {
	switch output {
	case "table":
		return writeTable, nil
	case "markdown":
		return writeMarkdown, nil
	case "json":
		return writeJSON, nil
	}
	return nil, fmt.Errorf("--output=%s: must be table, json or markdown", output)
}

// header has the columns of a row, and then those of each fill.
func (r *Result) header() []string {
	header := []string{"layout", "claim", "devices/node", "slices/node"}
	for _, fill := range r.Rows[0].Fills {
		prefix := fmt.Sprintf("%d/%d full: ", fill.FullGPUs, r.GPUsPerNode)
		header = append(header, prefix+"pods/s", "ratio", "CPU ms/pod", "ratio")
	}
	return header
}

func (r *Result) cells() [][]string {
	var cells [][]string
	for _, row := range r.Rows {
		cell := []string{row.Layout, row.Claim, fmt.Sprint(row.DevicesPerNode), fmt.Sprint(row.SlicesPerNode)}
		for _, fill := range row.Fills {
			cell = append(cell, rate(fill.PodsPerSecond), fmt.Sprintf("%.2f", fill.Ratio), fmt.Sprintf("%.1f", fill.SchedulerMillis), fmt.Sprintf("%.1f", fill.CPURatio))
		}
		cells = append(cells, cell)
	}
	return cells
}

func rate(podsPerSecond float64) string { return fmt.Sprintf("%.1f", podsPerSecond) }

func (r *Result) caption() string {
	return fmt.Sprintf("Kubernetes %s, %d CPUs, %d nodes of %d GPUs, %d pods, median of %d rounds",
		r.KubernetesVersion, r.CPUs, r.Nodes, r.GPUsPerNode, r.Pods, r.Rounds)
}

func writeTable(out io.Writer, r *Result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.ToUpper(strings.Join(r.header(), "\t")))
	for _, row := range r.cells() {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Fprintln(out)
	for i, row := range r.Rows {
		if i == 0 || row.Layout != r.Rows[i-1].Layout {
			fmt.Fprintf(out, "%s: %s\n", row.Layout, row.Publishes)
		}
	}
	fmt.Fprintf(out, "\n%s\n", r.caption())
	return nil
}

func writeMarkdown(out io.Writer, r *Result) error {
	header := r.header()
	fmt.Fprintf(out, "| %s |\n", strings.Join(header, " | "))
	fmt.Fprintf(out, "| --- | --- |%s\n", strings.Repeat(" ---: |", len(header)-2))
	for _, row := range r.cells() {
		row[0] = "`" + row[0] + "`"
		fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
	}
	fmt.Fprintf(out, "\n%s.\n", r.caption())
	return nil
}

func writeJSON(out io.Writer, r *Result) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}
