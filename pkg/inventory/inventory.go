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

// Package inventory keeps the answer to one question: which devices does this
// node have right now. It looks at the GPUs at intervals, publishes what
// changed, and looks devices up for whoever prepares claims.
//
// How a GPU is read is pkg/nvidia's business, how it is described pkg/publish's.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/nvidia"
	"github.com/memslice/memslice/pkg/publish"
)

// TaintUnavailable is on the devices of a GPU that carries prepared claims and
// can no longer be read or offered. It keeps new claims away and leaves running ones alone.
const TaintUnavailable = gpu.DriverName + "/unavailable"

// Scanner reads the GPUs. Its errors are those of [nvidia.Client.Scan].
type Scanner interface {
	Scan(context.Context) (nvidia.Inventory, error)
}

// Publisher makes devices known to the scheduler, without waiting for it.
type Publisher interface {
	PublishResources(context.Context, resourceslice.DriverResources) error
}

// Holders tells which GPUs, by UUID, carry prepared claims, and in which form.
type Holders interface {
	HeldGPUs(context.Context) (map[string]gpu.Form, error)
}

// Options of an [Inventory]. All are required.
type Options struct {
	Pool    string // the node's name
	Shares  publish.Options
	Scanner Scanner
	Holders Holders
}

// Inventory is what the node has. It is safe for concurrent use.
type Inventory struct {
	Options

	mu        sync.RWMutex
	seen      map[string]gpu.GPU // by UUID: as last offered, while offered or held
	devices   map[key]gpu.Device
	published *resourceslice.DriverResources
	problems  []string
	err       error // why there is nothing to serve
}

type key struct{ pool, name string }

// New returns an inventory that has not looked yet.
func New(o Options) *Inventory {
	return &Inventory{Options: o, seen: map[string]gpu.GPU{}, err: errors.New("the GPUs have not been looked at yet")}
}

// Device finds a device that is published and readable.
func (i *Inventory) Device(pool, name string) (gpu.Device, bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	d, ok := i.devices[key{pool, name}]
	return d, ok
}

// Err is why the node serves no GPUs, or nil.
func (i *Inventory) Err() error {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.err
}

// Run looks at the GPUs now and at every interval, until ctx is done. It returns
// early, with an error, only where a new process is needed to go on.
func (i *Inventory) Run(ctx context.Context, publisher Publisher, interval time.Duration) error {
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		if err := i.Refresh(ctx); errors.Is(err, nvidia.ErrRestartRequired) {
			return false, err
		}
		return false, i.publish(ctx, publisher)
	})
	if wait.Interrupted(err) {
		return nil
	}
	return err
}

// Refresh looks at the GPUs once. The error is also what [Inventory.Err]
// returns from then on.
func (i *Inventory) Refresh(ctx context.Context) error {
	scan, err := i.Scanner.Scan(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	held, heldErr := i.Holders.HeldGPUs(ctx)

	i.mu.Lock()
	defer i.mu.Unlock()
	gpus, blind := i.withMemory(scan.GPUs, held)
	devices, problems := publish.Devices(i.Pool, gpus, i.Shares)
	problems = append(problems, blind...)
	for _, p := range scan.Problems {
		problems = append(problems, p)
	}
	if heldErr != nil {
		problems = append(problems, fmt.Errorf("GPUs that are missing stay published, as it is unknown which are in use: %w", heldErr))
	}
	i.log(ctx, err, problems, len(scan.GPUs))
	i.err = err

	i.devices = make(map[key]gpu.Device, len(devices))
	offered := sets.New[string]()
	for _, d := range devices {
		i.devices[key{d.Pool, d.Name}] = d
		offered.Insert(d.GPU.UUID)
		i.seen[d.GPU.UUID] = *d.GPU
	}
	for uuid := range i.seen {
		if _, inUse := held[uuid]; !offered.Has(uuid) && !inUse && heldErr == nil {
			delete(i.seen, uuid)
		}
	}
	return err
}

// withMemory puts in the memory figure of GPUs that have stopped telling it: how
// much a card has does not change. Where it was never told, the shares of the
// card cannot be offered, and the whole of it must not be while it carries
// shares: the scheduler would give away once more what those have.
func (i *Inventory) withMemory(scanned []gpu.GPU, held map[string]gpu.Form) (gpus []gpu.GPU, problems []error) {
	for _, g := range scanned {
		if last, ok := i.seen[g.UUID]; ok && g.Memory == nil {
			g.Memory = last.Memory
		}
		if g.Memory == nil && held[g.UUID] == gpu.Slice {
			problems = append(problems, fmt.Errorf("GPU %s is not offered: claims hold shares of it, and how much memory it has is unknown", g.UUID))
			continue
		}
		gpus = append(gpus, g)
	}
	return gpus, problems
}

// publish makes known what there is, if that changed. A GPU that is held but
// cannot be read, or not be offered as it is, keeps its devices, tainted:
// without them the scheduler would forget what they carry and give it away
// again.
func (i *Inventory) publish(ctx context.Context, publisher Publisher) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	readable := sets.New[string]()
	for _, d := range i.devices {
		readable.Insert(d.GPU.UUID)
	}
	all := make([]gpu.GPU, 0, len(i.seen))
	taints := map[string][]resourceapi.DeviceTaint{}
	for uuid, g := range i.seen {
		all = append(all, g)
		if !readable.Has(uuid) {
			taints[uuid] = []resourceapi.DeviceTaint{{Key: TaintUnavailable, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
	}
	// The complaints about these GPUs were made when they were read.
	devices, _ := publish.Devices(i.Pool, all, i.Shares)
	resources := publish.Resources(i.Pool, devices, taints)
	if i.published != nil && equality.Semantic.DeepEqual(*i.published, resources) {
		return nil
	}
	if err := publisher.PublishResources(ctx, resources); err != nil {
		return fmt.Errorf("publish the devices of node %s: %w", i.Pool, err)
	}
	i.published = &resources
	klog.FromContext(ctx).V(2).Info("Published devices", "pool", i.Pool, "gpus", len(all), "devices", len(devices), "tainted", sets.List(sets.KeySet(taints)))
	return nil
}

// log says what is wrong once, when it changes, and when it is over.
func (i *Inventory) log(ctx context.Context, err error, problems []error, gpus int) {
	var now []string
	if err != nil {
		now = append(now, err.Error())
	}
	for _, p := range problems {
		now = append(now, p.Error())
	}
	slices.Sort(now)
	if slices.Equal(now, i.problems) {
		return
	}
	logger := klog.FromContext(ctx)
	for _, p := range now {
		if !slices.Contains(i.problems, p) {
			logger.Error(nil, "Problem with the GPUs of this node", "problem", p)
		}
	}
	for _, p := range i.problems {
		if !slices.Contains(now, p) {
			logger.Info("No longer a problem", "problem", p, "gpus", gpus)
		}
	}
	i.problems = now
}
