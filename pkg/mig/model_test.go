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

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/nvidia"
	"github.com/memslice/memslice/pkg/state/statetest"
)

const card = "GPU-00000001-0000-4000-8000-000000000000"

// hardware is a GPU of eight memory slices. Every change of it is a step that
// can fail, or be the last one before the process dies.
type hardware struct {
	faults    *statetest.Faults
	on        bool
	absent    error // why the GPU cannot be asked
	busy      bool  // instances have users
	halves    bool  // what cannot be made is not undone either
	instances []gpu.Instance
	made      int
}

var (
	_ Hardware = &hardware{}
	_ Hardware = &nvidia.Client{}
)

var errBusy = errors.New("in use by process 4711")

func (h *hardware) available() error {
	if h.absent != nil {
		return fmt.Errorf("asking the GPU: %w", h.absent)
	}
	return nil
}

func (h *hardware) MIGEnabled(context.Context, string) (bool, error) { return h.on, h.available() }

func (h *hardware) SetMIGMode(_ context.Context, _ string, on bool) error {
	if err := h.available(); err != nil {
		return err
	}
	if !on && len(h.instances) > 0 {
		return errBusy
	}
	return h.faults.Do(func() error { h.on = on; return nil }, nil)
}

func (h *hardware) Instances(context.Context, string) ([]gpu.Instance, error) {
	return slices.Clone(h.instances), h.available()
}

// CreateInstance that is torn leaves a GPU instance without a compute instance.
func (h *hardware) CreateInstance(_ context.Context, _ string, p gpu.Partition) (gpu.Instance, error) {
	if err := h.available(); err != nil {
		return gpu.Instance{}, err
	}
	if !h.on || slices.ContainsFunc(h.instances, func(i gpu.Instance) bool { return i.Overlaps(p) }) {
		return gpu.Instance{}, fmt.Errorf("no room for %v beside %v", p, h.instances)
	}
	h.made++
	i := gpu.Instance{UUID: fmt.Sprint("MIG-", h.made), Partition: p, GPUInstance: h.made}
	half := i
	half.UUID, half.ComputeInstance = "", -1
	err := h.faults.Do(
		func() error { h.instances = append(h.instances, i); return nil },
		func() error { h.instances = append(h.instances, half); return nil })
	if errors.Is(err, statetest.ErrInjected) && h.faults.Mode == statetest.FailAfter {
		// It leaves nothing behind, unless even that fails.
		h.instances = h.instances[:len(h.instances)-1]
		if h.halves {
			h.instances = append(h.instances, half)
		}
	}
	return i, err
}

func (h *hardware) DestroyInstance(_ context.Context, _ string, id int) error {
	if err := h.available(); err != nil {
		return err
	}
	if h.busy {
		return errBusy
	}
	return h.faults.Do(func() error {
		h.instances = slices.DeleteFunc(h.instances, func(i gpu.Instance) bool { return i.GPUInstance == id })
		return nil
	}, nil)
}

// stranger is an instance that an administrator makes.
func (h *hardware) stranger(p gpu.Partition) gpu.Instance {
	h.made++
	i := gpu.Instance{UUID: fmt.Sprint("MIG-", h.made), Partition: p, GPUInstance: h.made}
	h.instances = append(h.instances, i)
	return i
}

func at(profile string, start, size int) gpu.Partition {
	return gpu.Partition{Profile: profile, Start: start, Size: size}
}

// grantOf is a grant of an instance that is made at a place.
func grantOf(p gpu.Partition) gpu.Grant {
	return gpu.Grant{Request: "gpu", Pool: "pool", Device: "device", Form: gpu.MIG, UUID: card, Partition: p}
}
