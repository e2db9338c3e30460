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

//go:build libnvml

package main

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"unsafe"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// handles gives each thing that NVML has handles to one handle for the life of
// the process, so that a handle means the same GPU whatever its index becomes,
// and a destroyed instance's handle never means its successor. The library's
// mutex guards it.
type handles struct {
	names    map[unsafe.Pointer]string
	pointers map[string]unsafe.Pointer
}

func newHandles() handles {
	return handles{names: map[unsafe.Pointer]string{}, pointers: map[string]unsafe.Pointer{}}
}

// handle returns the handle of what has the name: a GPU's UUID, a GPU
// instance's key, or a compute instance's UUID, which is the MIG device's too.
// It is C memory, because callers keep it where their own garbage collector
// looks at pointers.
func (l *library) handle(name string) unsafe.Pointer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pointer, ok := l.handles.pointers[name]; ok {
		return pointer
	}
	pointer := C.calloc(1, 1)
	l.handles.pointers[name] = pointer
	l.handles.names[pointer] = name
	return pointer
}

// device returns the handle of a GPU or a MIG device.
func (l *library) device(uuid string) C.nvmlDevice_t { return C.nvmlDevice_t(l.handle(uuid)) }

// name is what a handle was made for.
func (l *library) name(pointer unsafe.Pointer) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name, ok := l.handles.names[pointer]
	return name, ok
}

// target is what a handle means now: a GPU and, where the handle is to one of
// its instances, that instance.
type target struct {
	*state.GPU
	model *catalog.Model
	// index is the GPU's.
	index int
	node  *state.State
	// instance and compute are nil for the GPU itself, compute for a GPU
	// instance.
	instance *state.GPUInstance
	compute  *state.ComputeInstance
}

// The kinds of handles that functions take.
func isGPU(t *target) bool             { return t.instance == nil }
func isMIGDevice(t *target) bool       { return t.compute != nil }
func isDevice(t *target) bool          { return isGPU(t) || isMIGDevice(t) }
func isGPUInstance(t *target) bool     { return t.instance != nil && t.compute == nil }
func isComputeInstance(t *target) bool { return t.compute != nil }

// find resolves a handle. A GPU that was removed is lost; an instance that was
// destroyed is nothing.
func (l *library) find(node *state.State, handle unsafe.Pointer, kind func(*target) bool) (*target, state.Result) {
	name, known := l.name(handle)
	if !known {
		return nil, state.InvalidArgument
	}
	found, result := lookup(node, name)
	if result != state.Success {
		return nil, result
	}
	if !kind(found) {
		return nil, state.InvalidArgument
	}
	model, err := catalog.Lookup(found.Model)
	if err != nil {
		return nil, state.Unknown
	}
	found.model, found.node = model, node
	return found, state.Success
}

func lookup(node *state.State, name string) (*target, state.Result) {
	for index, gpu := range node.Present() {
		if gpu.UUID == name {
			return &target{GPU: gpu, index: index}, state.Success
		}
		for i := range gpu.Instances {
			if gpu.Instances[i].Key == name {
				return &target{GPU: gpu, index: index, instance: &gpu.Instances[i]}, state.Success
			}
		}
		for _, device := range gpu.MIGDevices() {
			if device.Compute.UUID == name {
				return &target{GPU: gpu, index: index, instance: device.Instance, compute: device.Compute}, state.Success
			}
		}
	}
	if _, err := node.Find(name); err == nil {
		return nil, state.GPUIsLost
	}
	return nil, state.InvalidArgument
}

// profile is that of the GPU instance.
func (t *target) profile() *catalog.Profile {
	profile, ok := t.model.MIG.ByID(t.instance.Profile)
	if !ok {
		return &catalog.Profile{}
	}
	return profile
}

// computeProfile is that of the compute instance.
func (t *target) computeProfile() catalog.ComputeProfile {
	profile, _ := t.model.MIG.Compute(t.profile(), t.compute.Profile)
	return profile
}
