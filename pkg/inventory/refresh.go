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

package inventory

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/layout"
	"github.com/memslice/memslice/pkg/publish"
)

// Refresh looks at the GPUs once, and turns on the MIG mode of those for which
// that is configured and which are free. The error is also what [Inventory.Err]
// returns from then on.
func (i *Inventory) Refresh(ctx context.Context) error {
	v, err := i.look(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switched, problems := i.enable(ctx, v.enable)
	if switched {
		// They have something else to offer now.
		v, err = i.look(ctx)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.note(ctx, err, append(v.problems, problems...))
	i.take(v)
	i.err = err
	return err
}

// view is what one look came to.
type view struct {
	offers   []publish.Offer
	devices  []gpu.Device
	enable   []string // GPUs whose MIG mode is to be turned on
	held     func(uuid string) bool
	problems []error
}

// look reads the GPUs, the configuration and the prepared claims, and decides
// in which forms the GPUs are offered.
func (i *Inventory) look(ctx context.Context) (view, error) {
	var v view
	config, err := i.configuration(ctx)
	if config == nil {
		return v, err
	}
	if err != nil {
		v.problem("the configuration is wrong, and the former one stays in force: %w", err)
	}
	scan, scanErr := i.Hardware.Scan(ctx)
	for _, p := range scan.Problems {
		v.problems = append(v.problems, p)
	}
	held, err := i.Claims.Held(ctx)
	v.held = func(uuid string) bool { return err != nil || len(held[uuid]) > 0 }
	if err != nil {
		v.problem("all GPUs stay published as they were, as it is unknown which are in use: %w", err)
	}
	gpus := i.remember(scan.GPUs, held, &v)
	l := layout.Decide(layout.Input{Node: i.Node, Config: config, GPUs: gpus, Held: held, Made: i.Made})
	if err != nil {
		// A form may be held that would be pulled away.
		l = layout.Layout{Offers: i.former(gpus)}
	}
	i.withdraw(&l)
	devices, problems := publish.Devices(l.Offers)
	v.offers, v.devices, v.enable = l.Offers, devices, l.Enable
	v.problems = slices.Concat(v.problems, l.Problems, problems)
	return v, scanErr
}

func (v *view) problem(format string, args ...any) {
	v.problems = append(v.problems, fmt.Errorf(format, args...))
}

// configuration is the last one that was right, next to what is wrong with the
// present one.
func (i *Inventory) configuration(ctx context.Context) (*v1alpha1.NodeConfig, error) {
	config, err := i.Config(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err == nil {
		if i.config != nil && !equality.Semantic.DeepEqual(i.config, config) {
			i.changed = i.Now()
		}
		i.config = config
	}
	return i.config, err
}

// remember puts in what GPUs have stopped telling: how much memory and how many
// multiprocessors a card has does not change, and instances that claims hold are
// not to be taken for destroyed. Where its memory was never told,
// its shares cannot be offered, and the whole of it must not be while it carries
// shares: the scheduler would give away once more what those have.
func (i *Inventory) remember(scanned []gpu.GPU, held map[string][]gpu.Grant, v *view) (gpus []gpu.GPU) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, g := range scanned {
		if last, ok := i.seen[g.UUID]; ok {
			if g.Memory == nil {
				g.Memory = last.GPU.Memory
			}
			if g.Multiprocessors == 0 {
				g.Multiprocessors = last.GPU.Multiprocessors
			}
			g.MIG = rememberMIG(g.MIG, last.GPU.MIG)
		}
		shared := slices.ContainsFunc(held[g.UUID], func(grant gpu.Grant) bool { return grant.Form == gpu.Slice })
		if g.Memory == nil && shared {
			v.problem("GPU %s is not offered: claims hold shares of it, and how much memory it has is unknown", g.UUID)
			continue
		}
		gpus = append(gpus, g)
	}
	return gpus
}

func rememberMIG(now, last *gpu.MultiInstance) *gpu.MultiInstance {
	if now == nil || last == nil {
		return now
	}
	known := *now
	if now.Unread {
		known.Instances, known.Unread = last.Instances, last.Unread
	}
	if len(now.Profiles) == 0 {
		known.Profiles = last.Profiles
	}
	return &known
}

// former is how GPUs were offered when they were last looked at.
func (i *Inventory) former(gpus []gpu.GPU) (offers []publish.Offer) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, g := range gpus {
		if offer, ok := i.seen[g.UUID]; ok {
			offers = append(offers, offer)
		}
	}
	return offers
}

// withdraw keeps the devices that a changed configuration takes away for a while,
// out of reach for new claims. A claim may have been allocated one and not have
// been prepared; once it is, the device is held.
func (i *Inventory) withdraw(l *layout.Layout) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if i.Now().Sub(i.changed) >= i.Grace {
		return
	}
	for n, o := range l.Offers {
		former, ok := i.seen[o.GPU.UUID]
		if !ok || covers(o, former) {
			continue
		}
		former.Withheld = gpu.Draining
		l.Offers[n] = former
		l.Enable = slices.DeleteFunc(l.Enable, func(uuid string) bool { return uuid == o.GPU.UUID })
	}
}

// covers tells whether an offer has all devices of a former one.
func covers(o, former publish.Offer) bool {
	now, _ := publish.Devices([]publish.Offer{o})
	before, _ := publish.Devices([]publish.Offer{former})
	return !slices.ContainsFunc(before, func(b gpu.Device) bool {
		return !slices.ContainsFunc(now, func(d gpu.Device) bool { return d.Pool == b.Pool && d.Name == b.Name })
	})
}

// enable turns the MIG mode of free GPUs on.
func (i *Inventory) enable(ctx context.Context, uuids []string) (switched bool, problems []error) {
	for _, uuid := range uuids {
		free, err := i.Claims.WhenFree(ctx, uuid, func() error { return i.Hardware.SetMIGMode(ctx, uuid, true) })
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("the configured MIG mode: %w", err))
		case free:
			klog.FromContext(ctx).Info("Turned MIG mode on, as it is configured", "gpu", uuid)
			switched = true
		}
	}
	return switched, problems
}

// take makes a view the present one. A GPU that is held and not offered is lost.
func (i *Inventory) take(v view) {
	i.devices, i.lost = make(map[key]gpu.Device, len(v.devices)), map[string]bool{}
	offered := map[string]bool{}
	for _, d := range v.devices {
		offered[d.GPU.UUID] = true
		if d.Withheld != gpu.Unavailable {
			i.devices[key{d.Pool, d.Name}] = d
		}
	}
	for _, o := range v.offers {
		if offered[o.GPU.UUID] {
			i.seen[o.GPU.UUID] = o
		}
	}
	for uuid := range i.seen {
		switch {
		case offered[uuid]:
		case v.held != nil && v.held(uuid):
			i.lost[uuid] = true
		default:
			delete(i.seen, uuid)
		}
	}
}

// note says what is wrong once, when it changes, and when it is over.
func (i *Inventory) note(ctx context.Context, err error, problems []error) {
	var now []string
	if err != nil {
		now = append(now, err.Error())
	}
	for _, p := range problems {
		now = append(now, p.Error())
	}
	slices.Sort(now)
	now = slices.Compact(now)
	logger := klog.FromContext(ctx)
	for _, p := range now {
		if !slices.Contains(i.problems, p) {
			logger.Error(nil, "Problem with the GPUs of this node", "problem", p)
			i.Report(p)
		}
	}
	for _, p := range i.problems {
		if !slices.Contains(now, p) {
			logger.Info("No longer a problem", "problem", p)
		}
	}
	i.problems = now
}
