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
// node have right now. It looks at the GPUs and at the node's configuration at
// intervals, publishes what changed, and looks devices up for whoever prepares
// claims.
//
// How a GPU is read is pkg/nvidia's business, in which forms it is offered
// pkg/layout's, and how these are described pkg/publish's.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/nvidia"
	"github.com/memslice/memslice/pkg/publish"
)

// Hardware is the GPUs.
type Hardware interface {
	// Scan reads them. Its errors are those of [nvidia.Client.Scan].
	Scan(context.Context) (nvidia.Inventory, error)
	// SetMIGMode turns a GPU's MIG mode on or off.
	SetMIGMode(ctx context.Context, uuid string, on bool) error
}

// Claims is what has been prepared on this node.
type Claims interface {
	// Held is the grants of prepared claims, by the GPU's UUID.
	Held(context.Context) (map[string][]gpu.Grant, error)
	// WhenFree calls fn while no claim can be prepared, unless one has a grant
	// on the GPU.
	WhenFree(ctx context.Context, uuid string, fn func() error) (free bool, err error)
}

// Publisher makes devices known to the scheduler, without waiting for it.
type Publisher interface {
	PublishResources(context.Context, resourceslice.DriverResources) error
}

// Options of an [Inventory]. All but Report, Grace and Now are required.
type Options struct {
	Node     string
	Hardware Hardware
	Claims   Claims

	// Config is the node's configuration as it is now, complete and valid.
	Config func(context.Context) (*v1alpha1.NodeConfig, error)

	// Made tells whether this driver made the MIG instance at a place of a GPU.
	Made func(uuid string, p gpu.Partition) bool

	// Grace is how long devices that a changed configuration takes away stay,
	// out of reach for new claims. It has to be longer than a claim takes from
	// being allocated to being prepared.
	Grace time.Duration
	Now   func() time.Time // nil means time.Now

	// Report is told of each problem when it appears.
	Report func(problem string)
}

// Inventory is what the node has. It is safe for concurrent use.
type Inventory struct {
	Options

	mu        sync.RWMutex
	config    *v1alpha1.NodeConfig
	changed   time.Time                // when config did
	seen      map[string]publish.Offer // by UUID: as last offered, while offered or held
	lost      map[string]bool          // those of seen that are not offered now
	devices   map[key]gpu.Device
	published *resourceslice.DriverResources
	problems  []string
	err       error // why there is nothing to serve
}

type key struct{ pool, name string }

// New returns an inventory that has not looked yet.
func New(o Options) *Inventory {
	if o.Report == nil {
		o.Report = func(string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Inventory{Options: o, seen: map[string]publish.Offer{}, err: errors.New("the GPUs have not been looked at yet")}
}

// Device finds a device that is published and can be used.
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

// publish makes known what there is, if that changed. A GPU that is held but
// cannot be read, or not be offered as it is, keeps its devices, tainted:
// without them the scheduler would forget what they carry and give it away
// again.
func (i *Inventory) publish(ctx context.Context, publisher Publisher) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	var offers []publish.Offer
	for uuid, offer := range i.seen {
		if i.lost[uuid] {
			offer.Withheld = gpu.Unavailable
		}
		offers = append(offers, offer)
	}
	// The complaints about these GPUs were made when they were read.
	devices, _ := publish.Devices(offers)
	resources := publish.Resources(i.Node, devices)
	if i.published != nil && equality.Semantic.DeepEqual(*i.published, resources) {
		return nil
	}
	if err := publisher.PublishResources(ctx, resources); err != nil {
		return fmt.Errorf("publish the devices of node %s: %w", i.Node, err)
	}
	i.published = &resources
	klog.FromContext(ctx).V(2).Info("Published devices", "pools", len(resources.Pools), "gpus", len(offers), "devices", len(devices), "unavailable", len(i.lost))
	return nil
}
