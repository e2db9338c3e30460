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

package mig

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/nvidia"
	"github.com/memslice/memslice/pkg/state"
)

// Hardware is the GPUs. Its errors are nvidia.ErrDriverUnavailable while there
// is no driver, and nvidia.ErrGPUUnavailable while there is no such GPU.
type Hardware interface {
	MIGEnabled(ctx context.Context, uuid string) (bool, error)
	// SetMIGMode returns once the mode is in force.
	SetMIGMode(ctx context.Context, uuid string, on bool) error
	// Instances are all there are, also incomplete ones.
	Instances(ctx context.Context, uuid string) ([]gpu.Instance, error)
	// CreateInstance leaves nothing behind when it fails.
	CreateInstance(ctx context.Context, uuid string, p gpu.Partition) (gpu.Instance, error)
	// DestroyInstance succeeds where there is no such instance.
	DestroyInstance(ctx context.Context, uuid string, gpuInstance int) error
}

// Options of Partitions. All but FS is required.
type Options struct {
	Hardware Hardware
	Dir      string // of the marks
	BootID   string
	FS       state.FS // nil means state.OS
}

// Partitions is the MIG instances of a node. Whoever calls Realise, Release or
// Sweep must hold the lock of the prepared claims; Made needs none.
type Partitions struct {
	hardware Hardware
	marks    *marks
}

// New prepares the directory of the marks.
func New(o Options) (*Partitions, error) {
	m, err := openMarks(o)
	if err != nil {
		return nil, err
	}
	return &Partitions{hardware: o.Hardware, marks: m}, nil
}

// Made tells whether an instance at a place of a GPU was made here.
func (p *Partitions) Made(uuid string, place gpu.Partition) bool { return p.marks.has(uuid, place) }

// Realise makes the GPU ready for a grant of a device, and returns the MIG
// instance, if it is of one. others are the grants that are held on the GPU
// beside this one. Repeated, it changes nothing.
func (p *Partitions) Realise(ctx context.Context, g gpu.Grant, d gpu.Device, others []gpu.Grant) (gpu.Instance, error) {
	switch {
	case g.AdminAccess && g.Form != gpu.MIG:
		return gpu.Instance{}, nil
	case g.Form == gpu.MIG && (g.Existing != "" || g.AdminAccess):
		return p.find(ctx, g)
	case g.Form == gpu.MIG:
		return p.make(ctx, g, d, others)
	case d.MIGOnDemand:
		return gpu.Instance{}, p.leaveMIG(ctx, g.UUID, others)
	}
	return gpu.Instance{}, nil
}

// find looks for an instance that has to be there.
func (p *Partitions) find(ctx context.Context, g gpu.Grant) (gpu.Instance, error) {
	instances, err := p.hardware.Instances(ctx, g.UUID)
	if err != nil {
		return gpu.Instance{}, err
	}
	for _, i := range instances {
		if i.UUID != "" && (i.UUID == g.Existing || g.Existing == "" && i.Partition == g.Partition) {
			return i, nil
		}
	}
	if g.Existing != "" {
		return gpu.Instance{}, fmt.Errorf("GPU %s has no MIG instance %s any more: it was destroyed by others than memslice; delete the pod, so that its replacement is allocated what there is", g.UUID, g.Existing)
	}
	return gpu.Instance{}, fmt.Errorf("GPU %s has no MIG instance %s for admin access to: no claim holds one there at present", g.UUID, where(g.Partition))
}

// make has the instance there, in MIG mode.
func (p *Partitions) make(ctx context.Context, g gpu.Grant, d gpu.Device, others []gpu.Grant) (gpu.Instance, error) {
	on, err := p.hardware.MIGEnabled(ctx, g.UUID)
	switch {
	case err != nil:
		return gpu.Instance{}, err
	case !on && !d.MIGOnDemand:
		return gpu.Instance{}, fmt.Errorf("GPU %s is not in MIG mode: turn it on (nvidia-smi -i %[1]s -mig 1)", g.UUID)
	case !on:
		if err := p.setMode(ctx, g.UUID, true); err != nil {
			return gpu.Instance{}, err
		}
	}
	instances, err := p.hardware.Instances(ctx, g.UUID)
	if err != nil {
		return gpu.Instance{}, err
	}
	for _, i := range instances {
		switch {
		case !i.Overlaps(g.Partition):
		case !p.Made(g.UUID, i.Partition):
			return gpu.Instance{}, stranger(g.UUID, i)
		case i.Partition == g.Partition && i.UUID != "":
			return i, nil
		case held(i.Partition, others):
			return gpu.Instance{}, fmt.Errorf("GPU %s: MIG instance %s is held by another claim", g.UUID, where(i.Partition))
		default:
			// Of a claim that has ended, or a half of this one's.
			if err := p.destroy(ctx, g.UUID, i); err != nil {
				return gpu.Instance{}, err
			}
		}
	}
	if err := p.marks.put(g.UUID, g.Partition); err != nil {
		return gpu.Instance{}, err
	}
	instance, err := p.hardware.CreateInstance(ctx, g.UUID, g.Partition)
	if err != nil {
		// Also where the caller's time is up: a mark that stayed would claim what
		// an administrator may put there.
		if left := p.release(context.WithoutCancel(ctx), g.UUID, g.Partition); !outOfReach(left) {
			err = errors.Join(err, left)
		}
		return gpu.Instance{}, err
	}
	klog.FromContext(ctx).V(2).Info("Made a MIG instance", "gpu", g.UUID, "profile", g.Partition.Profile, "start", g.Partition.Start, "uuid", instance.UUID)
	return instance, nil
}

// leaveMIG has the GPU out of MIG mode.
func (p *Partitions) leaveMIG(ctx context.Context, uuid string, others []gpu.Grant) error {
	on, err := p.hardware.MIGEnabled(ctx, uuid)
	if err != nil || !on {
		return err
	}
	instances, err := p.hardware.Instances(ctx, uuid)
	if err != nil {
		return err
	}
	for _, i := range instances {
		if !p.Made(uuid, i.Partition) {
			return stranger(uuid, i)
		}
		if held(i.Partition, others) {
			return fmt.Errorf("GPU %s: MIG instance %s is held by another claim", uuid, where(i.Partition))
		}
		if err := p.destroy(ctx, uuid, i); err != nil {
			return err
		}
	}
	return p.setMode(ctx, uuid, false)
}

func (p *Partitions) setMode(ctx context.Context, uuid string, on bool) error {
	if err := p.hardware.SetMIGMode(ctx, uuid, on); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Changed MIG mode for a claim", "gpu", uuid, "on", on)
	return nil
}

// Release destroys what Realise made for a grant. Without the driver or the GPU
// there is nothing to destroy; should it come back with the instance, Sweep finds
// that by its mark.
func (p *Partitions) Release(ctx context.Context, g gpu.Grant) error {
	if g.Form != gpu.MIG || g.Existing != "" || g.AdminAccess || !p.Made(g.UUID, g.Partition) {
		return nil
	}
	err := p.release(ctx, g.UUID, g.Partition)
	if outOfReach(err) {
		klog.FromContext(ctx).Info("Leaving a MIG instance to be destroyed when its GPU is back", "gpu", g.UUID, "partition", where(g.Partition), "reason", err)
		return nil
	}
	return err
}

func outOfReach(err error) bool {
	return errors.Is(err, nvidia.ErrDriverUnavailable) || errors.Is(err, nvidia.ErrGPUUnavailable)
}

func (p *Partitions) release(ctx context.Context, uuid string, place gpu.Partition) error {
	instances, err := p.hardware.Instances(ctx, uuid)
	if err != nil {
		return err
	}
	for _, i := range instances {
		if i.Partition == place {
			return p.destroy(ctx, uuid, i)
		}
	}
	return p.marks.remove(uuid, place)
}

// destroy an instance that was made here.
func (p *Partitions) destroy(ctx context.Context, uuid string, i gpu.Instance) error {
	if err := p.hardware.DestroyInstance(ctx, uuid, i.GPUInstance); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Destroyed a MIG instance", "gpu", uuid, "profile", i.Profile, "start", i.Start, "uuid", i.UUID)
	return p.marks.remove(uuid, i.Partition)
}

// Sweep destroys the instances that were made here and that are not held, as a
// crash or an absent driver can leave them. It goes on after an error.
func (p *Partitions) Sweep(ctx context.Context, grants []gpu.Grant) error {
	marked, err := p.marks.all()
	errs := []error{err}
	for _, m := range marked {
		ofGPU := slices.DeleteFunc(slices.Clone(grants), func(g gpu.Grant) bool { return g.UUID != m.uuid })
		if held(m.place, ofGPU) {
			continue
		}
		if err := p.release(ctx, m.uuid, m.place); !outOfReach(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// held tells whether a grant is of an instance that is made at a place.
func held(place gpu.Partition, grants []gpu.Grant) bool {
	return slices.ContainsFunc(grants, func(g gpu.Grant) bool {
		return g.Form == gpu.MIG && g.Existing == "" && !g.AdminAccess && g.Partition == place
	})
}

func stranger(uuid string, i gpu.Instance) error {
	return fmt.Errorf("GPU %s: MIG instance %d, %s, is in the way, and memslice did not make it: destroy it (nvidia-smi mig -i %[1]s -dci -gi %[2]d; nvidia-smi mig -i %[1]s -dgi -gi %[2]d), or delete the pod, so that its replacement is allocated another", uuid, i.GPUInstance, where(i.Partition))
}

func where(p gpu.Partition) string { return fmt.Sprintf("%s at memory slice %d", p.Profile, p.Start) }
