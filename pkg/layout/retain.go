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
	"fmt"
	"slices"
	"strings"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
)

// withoutRoom are the grants whose devices are not part of an offer. The
// scheduler would forget what an allocated device takes as soon as the device is
// no longer published. Instances that are no more take nothing.
func (d *decision) withoutRoom(o publish.Offer) (waiting []gpu.Grant) {
	offered, _ := publish.Devices([]publish.Offer{o})
	for _, g := range d.held {
		same := func(w gpu.Device) bool {
			return w.Pool == g.Pool && w.Name == g.Device && w.Existing == g.Existing
		}
		room := slices.ContainsFunc(offered, same) || d.static() && (d.gone(g) || d.unread())
		if !room {
			waiting = append(waiting, g)
		}
	}
	return waiting
}

// retained is what claims hold of the GPU and nothing else, out of reach for new
// claims, until those that are waited for have ended.
func (d *decision) retained(wanted publish.Offer, waiting []gpu.Grant) publish.Offer {
	o := d.plain(d.held[0].Pool)
	o.Withheld, o.MIGOnDemand = gpu.Draining, d.onDemand()
	for _, g := range d.held {
		switch g.Form {
		case gpu.Slice:
			d.retainShares(&o)
		case gpu.Whole:
			o.Whole = true
		case gpu.MIG:
			d.retainPartition(&o, g)
		}
	}
	on := d.inMIGMode()
	if on == d.holds(gpu.Slice, gpu.Whole) && !o.MIGOnDemand {
		o.Withheld = gpu.Unavailable
		state, other, turn := "off", "on", 1
		if on {
			state, other, turn = "on", "off", 0
		}
		d.problem("claims hold %s, which its MIG mode does not allow at present: it is %s; turn it %s (nvidia-smi -i %s -mig %d), or delete their pods; no new claim gets any of it",
			devices(d.held), state, other, d.gpu.UUID, turn)
		return o
	}
	d.problem("its configuration (%s) applies once the claims that hold %s have ended (grants: %d); until then no new claim gets any of it",
		d.settings(wanted, waiting), devices(waiting), len(waiting))
	return o
}

// retainShares sees to it that there is a device for shares, whatever amounts
// are configured.
func (d *decision) retainShares(o *publish.Offer) {
	o.Shares = true
	if m := d.gpu.Memory; m != nil && int64(m.Usable())-o.Reserve < o.MemoryMin {
		o.Reserve, o.MemoryMin, o.MemoryStep = 0, 1, 1
	}
}

func (d *decision) retainPartition(o *publish.Offer, g gpu.Grant) {
	switch {
	case d.gpu.MIG == nil:
	case g.Existing != "":
		d.retainInstance(o, g.Existing)
	default:
		d.retainPlace(o, g.Partition)
	}
}

// retainInstance keeps an instance with all others in its GPU instance, by
// which it is named.
func (d *decision) retainInstance(o *publish.Offer, uuid string) {
	all := d.gpu.MIG.Instances
	n := slices.IndexFunc(all, func(i gpu.Instance) bool { return i.UUID == uuid })
	if n < 0 || slices.ContainsFunc(o.Instances, func(i gpu.Instance) bool { return i.UUID == uuid }) {
		return
	}
	for _, i := range all {
		if i.GPUInstance == all[n].GPUInstance {
			o.Instances = append(o.Instances, i)
		}
	}
}

// retainPlace keeps one place of a profile.
func (d *decision) retainPlace(o *publish.Offer, place gpu.Partition) {
	same := func(p gpu.Profile) bool { return p.Name == place.Profile }
	n := slices.IndexFunc(o.Profiles, same)
	if n < 0 {
		known := slices.IndexFunc(d.gpu.MIG.Profiles, same)
		if known < 0 {
			return
		}
		p := d.gpu.MIG.Profiles[known]
		p.Starts = nil
		o.Profiles, n = append(o.Profiles, p), len(o.Profiles)
	}
	if p := &o.Profiles[n]; !slices.Contains(p.Starts, place.Start) {
		p.Starts = append(p.Starts, place.Start)
	}
}

// settings are those that leave grants without room.
func (d *decision) settings(wanted publish.Offer, waiting []gpu.Grant) string {
	c := d.config
	var all []string
	for _, g := range waiting {
		setting := fmt.Sprintf("offer %v", c.Offer)
		switch {
		case g.Pool != wanted.Pool || g.Existing != "":
		case g.Form == gpu.Slice && wanted.Shares:
			setting = fmt.Sprintf("memory.min %s, memory.reserve %s", c.Memory.Min, c.Memory.Reserve)
		case g.Form == gpu.MIG && d.offers(v1alpha1.FormMIG):
			setting = fmt.Sprintf("mig.profiles %v", c.MIG.Profiles)
		}
		all = append(all, setting)
	}
	return join(all)
}

// devices names those that grants are of.
func devices(grants []gpu.Grant) string {
	var names []string
	for _, g := range grants {
		names = append(names, g.Device)
	}
	return join(names)
}

// join lists each text once, in an order that does not depend on theirs.
func join(texts []string) string {
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ", ")
}
