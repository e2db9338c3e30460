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

//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/e2e/harness"
)

// scenario is one thing that users get.
type scenario struct {
	// gets says it in a line.
	gets string
	// containers says that it makes no sense where none run.
	containers bool
	run        func(k *kit)
}

// group is scenarios on the same GPUs.
type group struct {
	name   string
	preset string
	// gpus is how many there are; 0 for as many as the preset has.
	gpus int
	// config is values of the chart about the nodes, and forms is in which each
	// GPU is offered then: in shares and whole where there are none.
	config    string
	forms     []string
	scenarios []scenario
}

// The quickstart is written for these, so they are left behind.
const lastPreset = "h100x8-r615"

func TestUsersGet(t *testing.T) {
	klog.SetLogger(logr.Discard()) // client libraries log what is retried
	c, err := harness.Up(t.Context(), harness.NewOptions(os.LookupEnv), harness.NewSteps(os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	if err := claimGPUs(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s := &suite{cluster: c, began: time.Now(), counts: map[string]int{}}
	defer s.summarize()
	for _, g := range []group{
		{name: "shares", preset: lastPreset, scenarios: shareScenarios()},
		{name: "claims", preset: lastPreset, scenarios: claimScenarios()},
		{name: "whole", preset: lastPreset, scenarios: wholeScenarios()},
		{name: "mistakes", preset: lastPreset, scenarios: mistakeScenarios()},
		{name: "nodes", preset: lastPreset, scenarios: nodeScenarios()},
		{name: "faults", preset: lastPreset, scenarios: faultScenarios()},
		{name: "spread", preset: lastPreset, scenarios: append(onOneNode(), spreadScenarios()...)},
		{name: "configuration", preset: lastPreset, scenarios: configurationScenarios()},
		{name: "isolation", preset: "h100x8-r615", gpus: 2, scenarios: isolationScenarios()},
		{name: "no-isolation", preset: "h100x8-r580", gpus: 2, scenarios: unenforcedScenarios()},
		{name: "static-mig", preset: lastPreset, scenarios: staticScenarios()},
		{name: "mig-mode", preset: lastPreset, scenarios: modeScenarios()},
		{name: "two-nodes", preset: lastPreset, gpus: 4, scenarios: onTwoNodes()},
		{name: "mig", preset: lastPreset, gpus: 4, config: everyForm, forms: allForms, scenarios: partitionScenarios()},
		{name: "mig-faults", preset: lastPreset, gpus: 4, config: everyForm, forms: allForms, scenarios: partitionFaultScenarios()},
		{name: "ampere", preset: "a100x8", gpus: 2, scenarios: ampereScenarios()},
		{name: "mixed", preset: "mixed", scenarios: mixedScenarios()},
		{name: "mixed-demos", preset: "mixed", scenarios: demoScenarios(c.Root(), "mixed")},
		{name: "demos", preset: lastPreset, scenarios: demoScenarios(c.Root(), lastPreset)},
	} {
		t.Run(g.name, func(t *testing.T) {
			s.offered = use(t, c, g)
			for _, scenario := range g.scenarios {
				t.Run(scenario.gets, func(t *testing.T) { s.play(t, g, scenario) })
			}
		})
	}
	use(t, c, group{preset: lastPreset})
}

// use has the GPUs of a group offered as it says, with nothing wrong with them,
// and returns what is published then.
func use(t *testing.T, c *harness.Cluster, g group) []harness.Device {
	t.Helper()
	ctx := t.Context()
	if g.forms == nil {
		g.forms = []string{harness.TypeWhole, harness.TypeShare}
	}
	err := c.GPUs.Ensure(ctx, g.preset, g.gpus)
	if err == nil {
		err = c.Configure(ctx, g.config)
	}
	if err != nil {
		t.Fatal(err)
	}
	devices, err := c.AwaitPublished(ctx, "every GPU in the form of "+strings.Join(g.forms, ", "), func(devices []harness.Device) string {
		return cmp.Or(c.Missing(ctx, devices), g.offered(devices))
	})
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

// offered says what is otherwise than the group has it.
func (g group) offered(devices []harness.Device) string {
	seen := map[string]bool{}
	for _, d := range devices {
		if seen[d.Name] {
			return d.Name + " is in two pools: one of them is about to go"
		}
		seen[d.Name] = true
		if d.Taints != "" {
			return d.Name + " is tainted: " + d.Taints
		}
		if got := forms(devices, d.GPU); !slices.Equal(got, g.forms) {
			return fmt.Sprintf("GPU %s is offered as %q", d.GPU, got)
		}
	}
	return ""
}

// suite plays scenarios and tells how they end.
type suite struct {
	cluster *harness.Cluster
	offered []harness.Device // between scenarios
	began   time.Time
	counts  map[string]int
	failed  []string
}

func (s *suite) play(t *testing.T, g group, scenario scenario) {
	began := time.Now()
	defer func() {
		outcome := "ok"
		switch {
		case t.Failed():
			outcome = "FAIL"
			s.failed = append(s.failed, scenario.gets)
		case t.Skipped():
			outcome = "skip"
		}
		s.counts[outcome]++
		fmt.Printf("%-4s %5.1fs  %s\n", outcome, time.Since(began).Seconds(), scenario.gets)
	}()
	if scenario.containers && s.cluster.Emulated {
		t.Skip("no containers run here: ", s.cluster.EmulatedWhy)
	}
	k := newKit(t, s.cluster, g.config)
	defer func() {
		k.tidy()
		s.asBefore(k)
	}()
	scenario.run(k)
}

// asBefore waits until the node offers what it did before the scenario, in the same
// order.
func (s *suite) asBefore(k *kit) {
	_, err := k.AwaitPublished(k.ctx, "what there was before", func(devices []harness.Device) string {
		if slices.Equal(devices, s.offered) {
			return ""
		}
		return "before there was " + names(s.offered) + ", now there is " + names(devices)
	})
	if err != nil {
		k.Error(err)
	}
}

func (s *suite) summarize() {
	fmt.Printf("\nusers get %d of %d things, found out in %.0fs\n", s.counts["ok"], s.counts["ok"]+s.counts["FAIL"], time.Since(s.began).Seconds())
	if skipped := s.counts["skip"]; skipped > 0 {
		fmt.Printf("%d were skipped, no containers run here: %s\n", skipped, s.cluster.EmulatedWhy)
	}
	for _, gets := range s.failed {
		fmt.Printf("FAIL  %s\n", gets)
	}
}

// claimGPUs makes sure that nobody else holds any: what the tests expect of
// placement depends on it. The demos' pods go, for they can be had again.
func claimGPUs(ctx context.Context, c *harness.Cluster) error {
	namespaces := c.Client.CoreV1().Namespaces()
	list, err := namespaces.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("look for earlier pods: %w", err)
	}
	for _, ns := range list.Items {
		if !slices.Contains(demoFolders(c.Root()), ns.Name) && ns.Labels[testLabel] == "" {
			continue
		}
		fmt.Fprintf(os.Stderr, "    removing namespace %s, whose pods hold GPUs that the tests need\n", ns.Name)
		err := namespaces.Delete(ctx, ns.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("remove namespace %s: %w", ns.Name, err)
		}
		err = harness.Await(ctx, "namespace "+ns.Name+" to be gone", func(ctx context.Context) (string, error) {
			_, err := namespaces.Get(ctx, ns.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return "", nil
			}
			return "it is being removed", err
		})
		if err != nil {
			return err
		}
	}
	claims, err := c.Client.ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("look for earlier claims: %w", err)
	}
	for _, claim := range claims.Items {
		if claim.Status.Allocation != nil {
			return fmt.Errorf("ResourceClaim %s/%s holds GPUs that the tests need: delete the pods that use it, and it", claim.Namespace, claim.Name)
		}
	}
	return nil
}
