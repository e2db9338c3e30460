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

// Package layout decides in which forms each GPU of a node is offered: what the
// configuration asks for, as far as the hardware can, and without pulling a form
// from under a claim that holds it.
//
// It is pure. How a form is described to the scheduler is pkg/publish's business.
package layout

import (
	"fmt"
	"slices"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
)

// Input is what a decision is made on.
type Input struct {
	Node   string
	Config *v1alpha1.NodeConfig // complete and valid
	GPUs   []gpu.GPU
	Held   map[string][]gpu.Grant // by the GPU's UUID

	// Made tells whether this driver made the MIG instance at a place of a GPU.
	Made func(uuid string, p gpu.Partition) bool
}

// Layout is in which forms the GPUs of a node are offered.
type Layout struct {
	// Offers are in the order of the GPUs. One without any form has no devices.
	Offers []publish.Offer

	// Enable is the GPUs whose MIG mode is to be turned on, by UUID. No claim
	// holds any of them.
	Enable []string

	// Problems name each GPU that is not offered as it is configured, and say
	// why and what to do.
	Problems []error
}

// Decide is the layout for the GPUs as they are.
func Decide(in Input) Layout {
	var l Layout
	for _, g := range in.GPUs {
		d := decision{Input: in, gpu: g, config: in.Config.For(g.UUID, g.ProductName, g.Architecture)}
		for _, grant := range in.Held[g.UUID] {
			if !grant.AdminAccess {
				d.held = append(d.held, grant)
			}
		}
		l.Offers = append(l.Offers, d.offer())
		l.Problems = append(l.Problems, d.problems...)
		if d.enable {
			l.Enable = append(l.Enable, g.UUID)
		}
	}
	return l
}

// decision is about one GPU.
type decision struct {
	Input
	gpu    gpu.GPU
	config v1alpha1.GPUConfig
	held   []gpu.Grant // without those for admin access, which take nothing

	problems []error
	enable   bool
}

func (d *decision) offer() publish.Offer {
	d.checkReset()
	d.checkInstances()
	occupied := d.foreign()
	o, incomplete := d.wanted()
	d.enforceable(&o)
	if waiting := d.withoutRoom(o); len(waiting) > 0 {
		o = d.retained(o, waiting)
	} else if incomplete != nil {
		d.problems = append(d.problems, incomplete)
	}
	o.Occupied = occupied
	return o
}

func (d *decision) problem(format string, args ...any) {
	d.problems = append(d.problems, d.errorf(format, args...))
}

func (d *decision) errorf(format string, args ...any) error {
	return fmt.Errorf("GPU %s: %w", d.gpu.UUID, fmt.Errorf(format, args...))
}

func (d *decision) offers(form v1alpha1.Form) bool { return slices.Contains(d.config.Offer, form) }

func (d *decision) holds(forms ...gpu.Form) bool {
	return slices.ContainsFunc(d.held, func(g gpu.Grant) bool { return slices.Contains(forms, g.Form) })
}

func (d *decision) inMIGMode() bool { return d.gpu.MIG != nil && d.gpu.MIG.Enabled }

// static tells that the GPU's instances are an administrator's, and offered as
// they are.
func (d *decision) static() bool { return d.inMIGMode() && !d.offers(v1alpha1.FormMIG) }
