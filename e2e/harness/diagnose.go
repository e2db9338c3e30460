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

package harness

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Diagnose collects what one would look at first when pods of a namespace do not
// do what they should. It never fails: what it cannot find out is part of it.
func (c *Cluster) Diagnose(ctx context.Context, namespace string) string {
	var text strings.Builder
	section := func(title, body string) { fmt.Fprintf(&text, "--- %s\n%s\n", title, strings.TrimSpace(body)) }
	for _, args := range [][]string{
		{"get", "pods", "--output", "wide"},
		{"get", "events", "--sort-by=.lastTimestamp"},
		{"get", "resourceclaims", "--output", "yaml"},
	} {
		out, err := c.Kubectl(ctx, append(args, "--namespace", namespace)...)
		if err != nil {
			out = err.Error()
		}
		section("kubectl "+strings.Join(args, " "), out)
	}
	section("published devices", c.published(ctx))
	if instances, err := c.GPUs.tools.run(ctx, nil, "fakegpu", "mig", "list", "--root", c.GPUs.root); err == nil {
		section("MIG instances", string(instances))
	}
	problems, err := c.nodeProblems(ctx)
	if err != nil {
		problems = append(problems, err.Error())
	}
	section("problems on the node", strings.Join(problems, "\n"))
	section("the plugin's log, its end", c.PluginLog(ctx, 60))
	section("logs of the cluster", c.LogDir)
	return text.String()
}

func (c *Cluster) published(ctx context.Context) string {
	devices, err := c.Devices(ctx)
	if err != nil {
		return err.Error()
	}
	holders := map[string][]string{}
	claims, err := c.Client.ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			holders[result.Device] = append(holders[result.Device], claim.Namespace+"/"+claim.Name)
		}
	}
	var text strings.Builder
	for _, d := range devices {
		fmt.Fprintf(&text, "%-36s %s %d bytes, held by %d claims %s %s\n", d.Name, d.GPU, d.Memory, len(holders[d.Name]), strings.Join(holders[d.Name], " "), d.Taints)
	}
	return text.String()
}
