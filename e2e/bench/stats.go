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

import "slices"

// Result is what was measured. Its JSON form is for scripts.
type Result struct {
	KubernetesVersion string `json:"kubernetesVersion"`
	CPUs              int    `json:"cpus"`
	Nodes             int    `json:"nodes"`
	GPUsPerNode       int    `json:"gpusPerNode"`
	Pods              int    `json:"pods"` // in each measurement
	Rounds            int    `json:"rounds"`
	Rows              []Row  `json:"rows"`
}

// Row is one kind of claim to one layout.
type Row struct {
	Layout         string `json:"layout"`
	Publishes      string `json:"publishes"`
	Claim          string `json:"claim"`
	DevicesPerNode int    `json:"devicesPerNode"`
	SlicesPerNode  int    `json:"slicesPerNode"`

	Fills []Fill `json:"fills"`
}

// Fill is what was measured while some GPUs of each node were full.
type Fill struct {
	FullGPUs int `json:"fullGPUs"`

	Sample // the medians
	// Ratio and CPURatio are the medians, over the rounds, of the two figures
	// divided by those of the first row in the same round: a machine that is slow
	// for a while changes them little.
	Ratio    float64 `json:"ratio"`
	CPURatio float64 `json:"cpuRatio"`

	Samples []Sample `json:"samples"` // one for each round
}

// Sample is one measurement.
type Sample struct {
	PodsPerSecond float64 `json:"podsPerSecond"`
	// SchedulerMillis is the CPU time that the scheduler takes for a pod. What else
	// runs on the machine changes it less than the other figures.
	SchedulerMillis float64 `json:"schedulerMillisPerPod"`
}

// summarize fills in what follows from the samples.
func (r *Result) summarize() {
	for _, row := range r.Rows {
		for i := range row.Fills {
			row.Fills[i].summarize(r.Rows[0].Fills[i].Samples)
		}
	}
}

func (f *Fill) summarize(first []Sample) {
	var rates, millis, ratios, cpuRatios []float64
	for round, sample := range f.Samples {
		rates = append(rates, sample.PodsPerSecond)
		millis = append(millis, sample.SchedulerMillis)
		ratios = append(ratios, ratio(sample.PodsPerSecond, first[round].PodsPerSecond))
		cpuRatios = append(cpuRatios, ratio(sample.SchedulerMillis, first[round].SchedulerMillis))
	}
	f.Sample = Sample{PodsPerSecond: median(rates), SchedulerMillis: median(millis)}
	f.Ratio, f.CPURatio = median(ratios), median(cpuRatios)
}

// ratio is 0 where it is not known: CPU time is counted in steps, and so little
// may have been used that it is none.
func ratio(figure, first float64) float64 {
	if first == 0 {
		return 0
	}
	return figure / first
}

// median is 0 for no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
