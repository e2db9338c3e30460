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
#include "shim.h"
*/
import "C"

import (
	"errors"
	"io/fs"
	"syscall"
	"unsafe"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// query is a question about what a handle means: its kind of handle, and the
// name by which failures are injected into it.
type query struct {
	handle unsafe.Pointer
	kind   func(*target) bool
	name   state.Query
}

// aboutGPU asks about a GPU, aboutDevice about a GPU or a MIG device.
func aboutGPU(device C.nvmlDevice_t, name state.Query) query {
	return query{unsafe.Pointer(device), isGPU, name}
}

func aboutDevice(device C.nvmlDevice_t, name state.Query) query {
	return query{unsafe.Pointer(device), isDevice, name}
}

func aboutMIGDevice(device C.nvmlDevice_t, name state.Query) query {
	return query{unsafe.Pointer(device), isMIGDevice, name}
}

func aboutGPUInstance(instance C.nvmlGpuInstance_t, name state.Query) query {
	return query{unsafe.Pointer(instance), isGPUInstance, name}
}

func aboutComputeInstance(instance C.nvmlComputeInstance_t, name state.Query) query {
	return query{unsafe.Pointer(instance), isComputeInstance, name}
}

// ask answers a query: it finds what the handle means now, lets injected
// failures speak first, and has answer fill in out.
func ask[T any](q query, out *T, answer func(*target, *T) state.Result) C.nvmlReturn_t {
	node, result := process.current()
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	found, result := process.find(node, q.handle, q.kind)
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	if out == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	if result := process.failure(found.GPU, q.name); result != state.Success {
		return C.nvmlReturn_t(result)
	}
	return C.nvmlReturn_t(answer(found, out))
}

// askMIG is ask about a GPU that can be partitioned.
func askMIG[T any](device C.nvmlDevice_t, name state.Query, out *T,
	answer func(*target, *catalog.Geometry, *T) state.Result) C.nvmlReturn_t {
	return ask(aboutGPU(device, name), out, func(t *target, out *T) state.Result {
		if t.model.MIG == nil {
			return state.NotSupported
		}
		return answer(t, t.model.MIG, out)
	})
}

// change does something to what a handle means, while no other process does.
// Injected failures come before it is done.
func change(q query, do func(*target) error) C.nvmlReturn_t {
	node, result := process.current()
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	found, result := process.find(node, q.handle, q.kind)
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	if result := process.failure(found.GPU, q.name); result != state.Success {
		return C.nvmlReturn_t(result)
	}
	err := process.store.Update(func(node *state.State) error {
		if !node.Driver.Loaded {
			return &state.Refusal{Result: state.DriverNotLoaded}
		}
		// Other processes may have changed it since.
		found, result := process.find(node, q.handle, q.kind)
		if result != state.Success {
			return &state.Refusal{Result: result}
		}
		return do(found)
	})
	return C.nvmlReturn_t(resultOf(err))
}

// resultOf is what NVML answers when a change ends in an error.
func resultOf(err error) state.Result {
	var refusal *state.Refusal
	switch {
	case err == nil:
		return state.Success
	case errors.As(err, &refusal):
		return refusal.Result
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return state.NoPermission
	default:
		return state.Unknown
	}
}

// failure is what was injected into the query of a GPU, or Success. It counts
// as one of the failures that are left.
func (l *library) failure(gpu *state.GPU, name state.Query) state.Result {
	if gpu.Lost {
		return state.GPUIsLost
	}
	result := gpu.Failures[name]
	if _, counted := gpu.FailuresLeft[name]; result == state.Success || !counted {
		return result
	}
	err := l.store.Update(func(node *state.State) error {
		gpu, err := node.Find(gpu.UUID)
		if err != nil {
			return err
		}
		// Another thread may have had the last one.
		result = gpu.Failures[name]
		gpu.Failed(name)
		return nil
	})
	if err != nil {
		return resultOf(err)
	}
	return result
}

// value answers with something that is known from the target alone.
func value[T any](of func(*target) T) func(*target, *T) state.Result {
	return func(t *target, out *T) state.Result {
		*out = of(t)
		return state.Success
	}
}

// askText answers with a string, in a buffer of the caller's.
func askText(q query, buffer *C.char, length C.uint, of func(*target) string) C.nvmlReturn_t {
	return ask(q, buffer, func(t *target, _ *C.char) state.Result { return putText(buffer, length, of(t)) })
}

// putText writes a terminated string into a buffer of the caller's.
func putText(buffer *C.char, length C.uint, text string) state.Result {
	if buffer == nil {
		return state.InvalidArgument
	}
	if int(length) <= len(text) {
		return state.InsufficientSize
	}
	fill(unsafe.Slice(buffer, int(length)), text)
	return state.Success
}

// fill writes a terminated string, cut to what fits.
func fill(buffer []C.char, text string) {
	n := min(len(text), len(buffer)-1)
	for i := range n {
		buffer[i] = C.char(text[i])
	}
	buffer[n] = 0
}
