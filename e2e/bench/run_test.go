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
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/harness"
)

// journal is a stage that notes what is done on it, and gives out 1, 2, 3...
type journal struct {
	done   []string
	given  float64
	failAt string
}

func (j *journal) note(what string) error {
	j.done = append(j.done, what)
	if what == j.failAt {
		return errors.New("it broke")
	}
	return nil
}

func (j *journal) publish(_ context.Context, p publication) error { return j.note("publish " + p.name) }
func (j *journal) fill(_ context.Context, p publication, from, to int) error {
	return j.note(fmt.Sprintf("fill %s from %d to %d", p.name, from, to))
}
func (j *journal) withdraw(context.Context) error { return j.note("withdraw") }
func (j *journal) sample(_ context.Context, kind claimKind) (Sample, error) {
	j.given++
	return Sample{PodsPerSecond: j.given}, j.note(string(kind))
}

func measureOnJournal(t *testing.T, j *journal) (*Result, error) {
	t.Helper()
	chosen := []publication{{name: "a", claims: []claimKind{share}}, {name: "b", claims: []claimKind{spread, whole}}}
	fills := func() []Fill { return []Fill{{FullGPUs: 0}, {FullGPUs: 4}, {FullGPUs: 6}} }
	r := &Result{Rounds: 2, Rows: []Row{{Layout: "a", Fills: fills()}, {Layout: "b", Fills: fills()}, {Layout: "b", Fills: fills()}}}
	return r, r.measure(context.Background(), harness.NewSteps(&bytes.Buffer{}), chosen, j)
}

func TestLayoutsTakeTurns(t *testing.T) {
	j := &journal{}
	r, err := measureOnJournal(t, j)
	if err != nil {
		t.Fatal(err)
	}
	round := []string{
		"publish a", string(share), "fill a from 0 to 4", string(share), "fill a from 4 to 6", string(share), "withdraw",
		"publish b", string(spread), string(whole), "fill b from 0 to 4", string(spread), string(whole),
		"fill b from 4 to 6", string(spread), string(whole), "withdraw",
	}
	if diff := cmp.Diff(append(round, round...), j.done); diff != "" {
		t.Errorf("what was done (-want +got):\n%s", diff)
	}
	want := [][][]float64{
		{{1, 10}, {2, 11}, {3, 12}},
		{{4, 13}, {6, 15}, {8, 17}},
		{{5, 14}, {7, 16}, {9, 18}},
	}
	for i, row := range r.Rows {
		var got [][]float64
		for _, fill := range row.Fills {
			var rates []float64
			for _, sample := range fill.Samples {
				rates = append(rates, sample.PodsPerSecond)
			}
			got = append(got, rates)
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("samples of row %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestFailureNamesTheLayout(t *testing.T) {
	for failAt, want := range map[string]string{
		"publish b":          "layout b: it broke",
		"withdraw":           "layout a: it broke",
		string(whole):        fmt.Sprintf("layout b: claims of %s with 0 GPUs full: it broke", whole),
		"fill b from 4 to 6": "layout b: it broke",
	} {
		t.Run(failAt, func(t *testing.T) {
			j := &journal{failAt: failAt}
			_, err := measureOnJournal(t, j)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want %q", err, want)
			}
			if last := j.done[len(j.done)-1]; last != failAt {
				t.Errorf("it went on after the failure, to %q", last)
			}
		})
	}
}

// What is measured is in the result before anything is measured.
func TestNewResult(t *testing.T) {
	chosen, err := choose([]string{"default", "mig"})
	if err != nil {
		t.Fatal(err)
	}
	machines, err := fleet(1)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newResult(options{nodes: 7, pods: 5, rounds: 3, full: []int{0, 2}}, chosen, machines[0])
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range r.Rows {
		got = append(got, fmt.Sprintf("%s %s %d", row.Layout, row.Claim, row.DevicesPerNode))
		if len(row.Fills) != 2 || row.Fills[0].FullGPUs != 0 || row.Fills[1].FullGPUs != 2 {
			t.Errorf("%s, %s: got fills %+v, want 0 and 2", row.Layout, row.Claim, row.Fills)
		}
	}
	want := []string{"default 4Gi 16", "default 4Gi, spread 16", "default a whole GPU 16",
		"mig 4Gi 216", "mig 4Gi, spread 216", "mig a 1g.10gb 216"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// The folder of the cluster is emptied, so it must not be that of the demo.
func TestClusterHasItsOwnFolder(t *testing.T) {
	o := options{root: t.TempDir()}
	places, err := o.places()
	if err != nil {
		t.Fatal(err)
	}
	if want := o.root + "/_output/bench"; places.State != want {
		t.Errorf("got %s, want %s", places.State, want)
	}
	o.state = t.TempDir()
	if places, err = o.places(); err != nil || places.State != o.state {
		t.Errorf("got %s and error %v, want %s", places.State, err, o.state)
	}
}
