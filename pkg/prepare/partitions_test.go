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

package prepare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/state/statetest"
)

// hardware is the GPUs of a host. What is on them is lost with the power.
type hardware struct {
	instances []instance
	inMIGMode map[string]bool // by the GPU's UUID
	made      int
	beside    map[string][]string // what a device was made beside last, sorted

	unavailable error                 // why the driver is
	busy        map[string]error      // why an instance cannot go, by its UUID
	refuse      func(gpu.Grant) error // why a grant cannot be realised
}

type instance struct {
	gpu.Instance
	gpu     string
	foreign bool // made by an administrator
}

// partitions stands in for pkg/mig. It works on the hardware of a host, step by
// step, and complains of calls that pkg/mig must not get.
type partitions struct {
	host   *host
	faults *statetest.Faults
}

// Realise implements Partitions.
func (p partitions) Realise(_ context.Context, g gpu.Grant, d gpu.Device, others []gpu.Grant) (gpu.Instance, error) {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	p.host.checkRealise(g, d, others)
	hw := &p.host.hardware
	if hw.refuse != nil {
		if err := hw.refuse(g); err != nil {
			return gpu.Instance{}, err
		}
	}
	switch {
	case hw.unavailable != nil:
		return gpu.Instance{}, hw.unavailable
	case g.AdminAccess && g.Form != gpu.MIG:
		return gpu.Instance{}, nil
	case g.AdminAccess || g.Existing != "":
		return hw.find(g)
	}
	for i := len(hw.instances) - 1; i >= 0; i-- {
		if leftOver := hw.instances[i]; leftOver.gpu == g.UUID && p.host.inTheWay(leftOver, g, others) {
			if err := p.destroy(leftOver); err != nil {
				return gpu.Instance{}, err
			}
		}
	}
	if on := g.Form == gpu.MIG; hw.inMIGMode[g.UUID] != on {
		if err := p.faults.Do(func() error { hw.inMIGMode[g.UUID] = on; return nil }, nil); err != nil {
			return gpu.Instance{}, err
		}
	}
	if g.Form != gpu.MIG {
		return gpu.Instance{}, nil
	}
	if found, err := hw.find(g); err == nil {
		return found, nil
	}
	if err := p.create(g); err != nil {
		return gpu.Instance{}, err
	}
	return hw.find(g)
}

// checkRealise is called with what pkg/prepare has to see to.
func (h *host) checkRealise(g gpu.Grant, d gpu.Device, others []gpu.Grant) {
	if d.Pool != g.Pool || d.Name != g.Device || d.GPU.UUID != g.UUID {
		h.t.Errorf("grant %v goes with the device %v", g, d)
	}
	if !h.isRecorded(g) {
		h.t.Errorf("no durable record has %v, which is about to be made", g)
	}
	var beside []string
	for _, o := range others {
		beside = append(beside, o.Device)
		if o.UUID != g.UUID || o.AdminAccess {
			h.t.Errorf("%v is said to hold something of GPU %s", o, g.UUID)
		}
		if !g.AdminAccess && (o.Form != g.Form || g.Form == gpu.MIG && g.Conflicts(o)) {
			h.t.Errorf("%v is to be made beside %v", g, o)
		}
	}
	slices.Sort(beside)
	h.hardware.beside[g.Device] = beside
}

// isRecorded tells whether a grant is in a record on the disk.
func (h *host) isRecorded(g gpu.Grant) bool {
	files, err := filepath.Glob(filepath.Join(h.claims, "*.json"))
	if err != nil {
		h.t.Error(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), fmt.Sprintf("%q", g.Device))
	})
}

// inTheWay tells whether an instance has to go for a grant. None may that is in
// use by others.
func (h *host) inTheWay(i instance, g gpu.Grant, others []gpu.Grant) bool {
	if slices.ContainsFunc(others, func(o gpu.Grant) bool { return o.Form == gpu.MIG && o.Partition == i.Partition }) {
		return false
	}
	if g.Form == gpu.MIG && g.Partition == i.Partition {
		return i.UUID == "" || i.foreign
	}
	return g.Form != gpu.MIG || g.Partition.Overlaps(i.Partition)
}

func (hw *hardware) find(g gpu.Grant) (gpu.Instance, error) {
	for _, i := range hw.instances {
		if i.gpu == g.UUID && i.UUID != "" && i.Partition == g.Partition && (g.Existing == "" || g.Existing == i.UUID) {
			return i.Instance, nil
		}
	}
	return gpu.Instance{}, fmt.Errorf("GPU %s has no instance %s at %d", g.UUID, g.Partition.Profile, g.Partition.Start)
}

func (p partitions) create(g gpu.Grant) error {
	hw := &p.host.hardware
	made := instance{gpu: g.UUID, Instance: gpu.Instance{Partition: g.Partition}}
	if err := p.faults.Do(func() error { hw.instances = append(hw.instances, made); return nil }, nil); err != nil {
		return err
	}
	return p.faults.Do(func() error {
		hw.made++
		hw.instances[len(hw.instances)-1].UUID = fmt.Sprint("MIG-", hw.made)
		return nil
	}, nil)
}

func (p partitions) destroy(i instance) error {
	hw := &p.host.hardware
	if i.foreign {
		return fmt.Errorf("the instance %s was made by somebody else", i.UUID)
	}
	if err := hw.busy[i.UUID]; err != nil && i.UUID != "" {
		return err
	}
	at := func(j instance) bool { return j.gpu == i.gpu && j.Partition == i.Partition }
	if i.UUID != "" {
		if err := p.faults.Do(func() error { hw.instances[slices.IndexFunc(hw.instances, at)].UUID = ""; return nil }, nil); err != nil {
			return err
		}
	}
	return p.faults.Do(func() error { hw.instances = slices.DeleteFunc(hw.instances, at); return nil }, nil)
}

// Release implements Partitions.
func (p partitions) Release(ctx context.Context, g gpu.Grant) error {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.Form != gpu.MIG || g.AdminAccess || g.Existing != "" || p.host.hardware.unavailable != nil {
		return nil
	}
	for _, i := range slices.Clone(p.host.hardware.instances) {
		if i.gpu == g.UUID && i.Partition == g.Partition && !i.foreign {
			if !p.host.isRecorded(g) {
				p.host.t.Errorf("no durable record has %v, which is still there", g)
			}
			return p.destroy(i)
		}
	}
	return nil
}

// Sweep implements Partitions.
func (p partitions) Sweep(_ context.Context, held []gpu.Grant) error {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	if p.host.hardware.unavailable != nil {
		return nil
	}
	var errs []error
	for _, i := range slices.Clone(p.host.hardware.instances) {
		isHeld := slices.ContainsFunc(held, func(g gpu.Grant) bool { return g.UUID == i.gpu && g.Partition == i.Partition })
		if !isHeld && !i.foreign {
			errs = append(errs, p.destroy(i))
		}
	}
	return errors.Join(errs...)
}

// administrator makes an instance at the place of a device, or destroys it.
func (h *host) administrator(device string, makes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := grant(device, 0)
	h.hardware.instances = slices.DeleteFunc(h.hardware.instances, func(i instance) bool { return i.gpu == g.UUID && i.Partition == g.Partition })
	if makes {
		h.hardware.instances = append(h.hardware.instances, instance{gpu: g.UUID, foreign: true, Instance: gpu.Instance{UUID: "MIG-of-admin", Partition: g.Partition}})
	}
}

// instanceUUID is that of the instance at the place of a device, if any.
func (h *host) instanceUUID(device string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	found, _ := h.hardware.find(grant(device, 0))
	return found.UUID
}

// wantRecorded checks that no instance has been forgotten: each is in a record,
// from before it is made until it is gone.
func (h *host) wantRecorded(where string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range h.hardware.instances {
		if g := grant(deviceAt(i.gpu, i.Partition), 0); !i.foreign && !h.isRecorded(g) {
			h.t.Errorf("%s: instance %s at %v of %s is in no record", where, i.UUID, i.Partition, i.gpu)
		}
	}
}

// wantInstances checks that what is on the GPUs is what these grants are of.
func (h *host) wantInstances(where string, grants []gpu.Grant) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	var want, got []string
	for _, g := range grants {
		if g.AdminAccess {
			continue
		}
		if h.hardware.inMIGMode[g.UUID] != (g.Form == gpu.MIG) {
			h.t.Errorf("%s: MIG mode of %s is %v, with a claim for %s", where, g.UUID, h.hardware.inMIGMode[g.UUID], g.Form)
		}
		if g.Form == gpu.MIG && g.Existing == "" {
			want = append(want, g.Device)
		}
	}
	for _, i := range h.hardware.instances {
		if !i.foreign {
			got = append(got, deviceAt(i.gpu, i.Partition))
		}
		if i.UUID == "" {
			h.t.Errorf("%s: the instance at %v of %s is incomplete", where, i.Partition, i.gpu)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		h.t.Errorf("%s: instances of %q, want them of %q", where, got, want)
	}
}

var _ Partitions = partitions{}

// partitionOf is the place of a device "mig-<GPU>-<size>-<start>".
func partitionOf(device string) gpu.Partition {
	var n, size, start int
	if _, err := fmt.Sscanf(device, "mig-%d-%d-%d", &n, &size, &start); err != nil {
		return gpu.Partition{}
	}
	return gpu.Partition{Profile: fmt.Sprintf("%dg.%dgb", size, 10*size), Start: start, Size: size}
}

func deviceAt(uuid string, p gpu.Partition) string {
	return fmt.Sprintf("mig-%s-%d-%d", strings.TrimPrefix(uuid, "GPU-"), p.Size, p.Start)
}
