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
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMedian(t *testing.T) {
	for name, tc := range map[string]struct {
		values []float64
		want   float64
	}{
		"none":               {nil, 0},
		"one":                {[]float64{3}, 3},
		"an odd number":      {[]float64{9, 1, 5}, 5},
		"an even number":     {[]float64{4, 1, 100, 2}, 3},
		"one that is far":    {[]float64{10, 11, 900, 9, 12}, 11},
		"the same, repeated": {[]float64{2, 2, 2}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]float64(nil), tc.values...)
			if got := median(tc.values); got != tc.want {
				t.Errorf("got %g, want %g", got, tc.want)
			}
			if diff := cmp.Diff(before, tc.values); diff != "" {
				t.Errorf("the values changed (-before +after):\n%s", diff)
			}
		})
	}
}

// The machine was slow in the third round, for all alike.
func TestRatiosAreOfTheSameRound(t *testing.T) {
	fills := func(samples ...[]Sample) (fills []Fill) {
		for full, s := range samples {
			fills = append(fills, Fill{FullGPUs: full, Samples: s})
		}
		return fills
	}
	r := Result{Rows: []Row{
		{Fills: fills([]Sample{{40, 5}, {60, 5}, {10, 6}}, []Sample{{10, 1}, {10, 1}, {10, 1}})},
		{Fills: fills([]Sample{{20, 10}, {30, 11}, {5, 12}}, []Sample{{10, 1}, {20, 3}, {30, 2}})},
		{Fills: fills([]Sample{{40, 1}, {30, 1}, {30, 1}}, []Sample{{1, 1}, {1, 1}, {10, 1}})},
	}}
	r.summarize()
	want := [][]Fill{
		{{FullGPUs: 0, Sample: Sample{40, 5}, Ratio: 1, CPURatio: 1}, {FullGPUs: 1, Sample: Sample{10, 1}, Ratio: 1, CPURatio: 1}},
		{{FullGPUs: 0, Sample: Sample{20, 11}, Ratio: 0.5, CPURatio: 2}, {FullGPUs: 1, Sample: Sample{20, 2}, Ratio: 2, CPURatio: 2}},
		{{FullGPUs: 0, Sample: Sample{30, 1}, Ratio: 1, CPURatio: 0.2}, {FullGPUs: 1, Sample: Sample{1, 1}, Ratio: 0.1, CPURatio: 1}},
	}
	for i, row := range r.Rows {
		for f := range row.Fills {
			row.Fills[f].Samples = nil
		}
		if diff := cmp.Diff(want[i], row.Fills); diff != "" {
			t.Errorf("row %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestNoCPUTimeNoRatio(t *testing.T) {
	r := Result{Rows: []Row{{Fills: []Fill{{Samples: []Sample{{40, 0}}}}}}}
	r.summarize()
	if got := r.Rows[0].Fills[0]; got.CPURatio != 0 || got.Ratio != 1 {
		t.Errorf("got %+v, want a CPURatio of 0", got)
	}
}
