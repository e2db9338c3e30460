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
	"context"
	"fmt"
	"os"
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
	name      string
	preset    string
	scenarios []scenario
}

// The quickstart is written for these, so they are left behind.
const lastPreset = "h100x8"

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
		{"shares", lastPreset, shareScenarios()},
		{"claims", lastPreset, claimScenarios()},
		{"whole", lastPreset, wholeScenarios()},
		{"mistakes", lastPreset, mistakeScenarios()},
		{"nodes", lastPreset, nodeScenarios()},
		{"faults", lastPreset, faultScenarios()},
		{"mixed", "mixed", mixedScenarios()},
	} {
		t.Run(g.name, func(t *testing.T) {
			useGPUs(t, c, g.preset)
			for _, scenario := range g.scenarios {
				t.Run(scenario.gets, func(t *testing.T) { s.play(t, scenario) })
			}
		})
	}
	useGPUs(t, c, lastPreset)
}

// useGPUs has the GPUs of a preset published, with nothing wrong with them.
func useGPUs(t *testing.T, c *harness.Cluster, preset string) {
	t.Helper()
	if err := c.GPUs.Ensure(t.Context(), preset); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitGPUs(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// suite plays scenarios and tells how they end.
type suite struct {
	cluster *harness.Cluster
	began   time.Time
	counts  map[string]int
	failed  []string
}

func (s *suite) play(t *testing.T, scenario scenario) {
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
	k := newKit(t, s.cluster)
	defer k.tidy()
	scenario.run(k)
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
// placement depends on it. The demo's pods go, for they can be had again.
func claimGPUs(ctx context.Context, c *harness.Cluster) error {
	namespaces := c.Client.CoreV1().Namespaces()
	list, err := namespaces.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("look for earlier pods: %w", err)
	}
	for _, ns := range list.Items {
		if ns.Name != demoNamespace && ns.Labels[testLabel] == "" {
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
