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
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/memslice/memslice/e2e/harness"
)

// run brings the control plane up, measures, and takes it down whatever happened.
func run(ctx context.Context, o options, steps *harness.Steps) (_ *Result, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	chosen, err := choose(o.layouts)
	if err != nil {
		return nil, err
	}
	machines, err := fleet(o.nodes)
	if err != nil {
		return nil, err
	}
	result, err := newResult(o, chosen, machines[0])
	if err != nil {
		return nil, err
	}
	places, err := o.places()
	if err != nil {
		return nil, err
	}
	plane := newControlPlane(places)
	defer func() { err = errors.Join(err, plane.down(context.WithoutCancel(ctx))) }()

	var client kubernetes.Interface
	err = steps.Do("Kubernetes on this machine, without a node", func(func(string)) (err error) {
		client, result.KubernetesVersion, err = plane.up(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	b := &bench{client: client, machines: machines, pods: o.pods, limit: o.limit, now: time.Now, schedulerTime: plane.schedulerTime}
	err = steps.Do(fmt.Sprintf("%d nodes, as objects only", o.nodes), func(func(string)) error { return b.prepare(ctx) })
	if err != nil {
		return nil, err
	}
	if err := whileAlive(ctx, b, func(ctx context.Context) error { return result.measure(ctx, steps, chosen, b) }); err != nil {
		return nil, err
	}
	result.summarize()
	return result, nil
}

// places resolves what was left out. The cluster's folder is not the one of other
// programs, because what is in it is removed.
func (o *options) places() (harness.Options, error) {
	places := harness.Options{Root: o.root, Bin: o.bin, State: o.state, Node: harness.NodeEmulated}
	if err := places.Complete(); err != nil {
		return harness.Options{}, err
	}
	if o.state == "" {
		places.State = filepath.Join(places.Root, "_output", "bench")
	}
	return places, nil
}

// whileAlive works while the nodes are kept alive.
func whileAlive(ctx context.Context, b *bench, work func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	alive, end := context.WithCancel(ctx)
	group.Go(func() error { return keepAlive(alive, b.client, b.machines) })
	group.Go(func() error {
		defer end()
		return work(ctx)
	})
	return group.Wait()
}

func newResult(o options, chosen []publication, example machine) (*Result, error) {
	r := &Result{CPUs: runtime.NumCPU(), Nodes: o.nodes, GPUsPerNode: len(example.gpus), Pods: o.pods, Rounds: o.rounds}
	for _, p := range chosen {
		resources, err := p.resources(example)
		if err != nil {
			return nil, err
		}
		row := Row{Layout: p.name, Publishes: p.what}
		for _, slice := range resourceSlices(example.name, resources) {
			row.SlicesPerNode++
			row.DevicesPerNode += len(slice.Spec.Devices)
		}
		for _, kind := range p.claims {
			row.Claim, row.Fills = string(kind), nil
			for _, full := range o.full {
				row.Fills = append(row.Fills, Fill{FullGPUs: full})
			}
			r.Rows = append(r.Rows, row)
		}
	}
	return r, nil
}

// stage is where samples are taken.
type stage interface {
	publish(context.Context, publication) error
	fill(ctx context.Context, p publication, from, to int) error
	sample(context.Context, claimKind) (Sample, error)
	withdraw(context.Context) error
}

// measure takes one sample for each row in each round, in turn.
func (r *Result) measure(ctx context.Context, steps *harness.Steps, chosen []publication, on stage) error {
	for round := range r.Rounds {
		err := steps.Do(fmt.Sprintf("Round %d of %d", round+1, r.Rounds), func(say func(string)) error {
			rows := r.Rows
			for _, p := range chosen {
				if err := measureOne(ctx, say, p, on, rows[:len(p.claims)]); err != nil {
					return fmt.Errorf("layout %s: %w", p.name, err)
				}
				rows = rows[len(p.claims):]
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// measureOne has a row for each kind of claim.
func measureOne(ctx context.Context, say func(string), p publication, on stage, rows []Row) error {
	say(fmt.Sprintf("%s: %s", p.name, p.what))
	if err := on.publish(ctx, p); err != nil {
		return err
	}
	filled := 0
	for i, fill := range rows[0].Fills {
		if fill.FullGPUs > filled {
			if err := on.fill(ctx, p, filled, fill.FullGPUs); err != nil {
				return err
			}
			filled = fill.FullGPUs
		}
		for k, kind := range p.claims {
			sample, err := on.sample(ctx, kind)
			if err != nil {
				return fmt.Errorf("claims of %s with %d GPUs full: %w", kind, filled, err)
			}
			rows[k].Fills[i].Samples = append(rows[k].Fills[i].Samples, sample)
			say(fmt.Sprintf("%s, %d full, %s: %s pods/s", p.name, filled, kind, rate(sample.PodsPerSecond)))
		}
	}
	return on.withdraw(ctx)
}
