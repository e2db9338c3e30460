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

package layout

import (
	"slices"
	"strings"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
)

// checkReset reports a change of MIG mode that takes a reset, unless the
// partitions that are configured are there all the same.
func (d *decision) checkReset() {
	m := d.gpu.MIG
	switch {
	case m == nil || m.Pending == m.Enabled:
	case m.Pending:
		d.problem("MIG mode is off, and turned on with its next reset: run nvidia-smi --gpu-reset -i %s, or reboot; until then it is offered as the present mode allows", d.gpu.UUID)
	case d.static():
		d.problem("MIG mode is on, and turned off with its next reset: run nvidia-smi --gpu-reset -i %s, or reboot; until then it is offered as the instances that it has", d.gpu.UUID)
	}
}

// checkInstances reports instances that claims hold and that are no more.
func (d *decision) checkInstances() {
	var gone []gpu.Grant
	for _, g := range d.held {
		if d.gone(g) {
			gone = append(gone, g)
		}
	}
	if len(gone) > 0 {
		d.problem("claims hold %s, the MIG instances of which were destroyed; delete their pods, so that their replacements are allocated what there is", devices(gone))
	}
}

// gone tells that an instance is not there any more. Another may have its place.
func (d *decision) gone(g gpu.Grant) bool {
	if d.unread() {
		return false // nobody knows
	}
	return g.Existing != "" && (d.gpu.MIG == nil || !slices.ContainsFunc(d.gpu.MIG.Instances, func(i gpu.Instance) bool { return i.UUID == g.Existing }))
}

// unread tells that the driver does not say which instances there are, and never
// has.
func (d *decision) unread() bool { return d.gpu.MIG != nil && d.gpu.MIG.Unread }

// checkProfiles reports profiles that are configured and that there are not.
func (d *decision) checkProfiles() {
	var names []string
	for _, p := range d.gpu.MIG.Profiles {
		names = append(names, p.Name)
	}
	for _, name := range d.config.MIG.Profiles {
		if len(names) > 0 && !slices.Contains(names, name) {
			d.problem("mig.profiles: it has no profile %q, but %s", name, strings.Join(names, ", "))
		}
	}
}

// foreign are the places of instances that are in the way of those that are
// made for claims. Where claims hold one, it is waited for, and not reported.
func (d *decision) foreign() (places []gpu.Partition) {
	if d.gpu.MIG == nil || !d.offers(v1alpha1.FormMIG) {
		return nil
	}
	seen := map[int]bool{}
	held := map[int]bool{}
	for _, i := range d.gpu.MIG.Instances {
		if i.UUID != "" && slices.ContainsFunc(d.held, func(g gpu.Grant) bool { return g.Existing == i.UUID }) {
			held[i.GPUInstance] = true
		}
	}
	for _, i := range d.gpu.MIG.Instances {
		if seen[i.GPUInstance] || d.Made(d.gpu.UUID, i.Partition) {
			continue
		}
		seen[i.GPUInstance] = true
		places = append(places, i.Partition)
		if !held[i.GPUInstance] {
			d.problem("MIG instance %d, %s at memory slice %d, is not memslice's; what cannot be had beside it is withheld until it is destroyed (nvidia-smi mig -i %[4]s -dci -gi %[1]d; nvidia-smi mig -i %[4]s -dgi -gi %[1]d)",
				i.GPUInstance, i.Profile, i.Start, d.gpu.UUID)
		}
	}
	return places
}
