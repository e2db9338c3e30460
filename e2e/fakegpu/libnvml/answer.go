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

// handles gives each GPU one handle for the life of the process, so that a
// handle means the same GPU whatever its index becomes. The library's mutex
// guards it.
type handles struct {
	uuids   map[C.nvmlDevice_t]string
	devices map[string]C.nvmlDevice_t
}

// handle returns the GPU's handle. It is C memory, because callers keep it
// where their own garbage collector looks at pointers.
func (l *library) handle(uuid string) C.nvmlDevice_t {
	l.mu.Lock()
	defer l.mu.Unlock()
	if device, ok := l.handles.devices[uuid]; ok {
		return device
	}
	device := C.nvmlDevice_t(unsafe.Pointer(C.calloc(1, 1)))
	l.handles.devices[uuid] = device
	l.handles.uuids[device] = uuid
	return device
}

func (l *library) uuid(device C.nvmlDevice_t) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	uuid, ok := l.handles.uuids[device]
	return uuid, ok
}

// gpu is all that an answer about one GPU may need.
type gpu struct {
	*state.GPU
	model *catalog.Model
	index int
	node  *state.State
}

// ask answers a query about a GPU: it finds the GPU as it is now, lets
// injected failures speak first, and has answer fill in out.
func ask[T any](device C.nvmlDevice_t, query state.Query, out *T, answer func(*gpu, *T) state.Result) C.nvmlReturn_t {
	node, result := process.current()
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	uuid, known := process.uuid(device)
	if !known || out == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	index, present := node.Index(uuid)
	if !present {
		return C.NVML_ERROR_GPU_IS_LOST
	}
	subject := &gpu{GPU: node.Present()[index], index: index, node: node}
	if result := failure(subject.GPU, query); result != state.Success {
		return C.nvmlReturn_t(result)
	}
	model, err := catalog.Lookup(subject.Model)
	if err != nil {
		return C.NVML_ERROR_UNKNOWN
	}
	subject.model = model
	return C.nvmlReturn_t(answer(subject, out))
}

// askMIG is ask for models that can be partitioned.
func askMIG[T any](device C.nvmlDevice_t, query state.Query, out *T,
	answer func(*gpu, *catalog.Geometry, *T) state.Result) C.nvmlReturn_t {
	return ask(device, query, out, func(g *gpu, out *T) state.Result {
		if g.model.MIG == nil {
			return state.NotSupported
		}
		return answer(g, g.model.MIG, out)
	})
}

// failure is what was injected into the GPU's query, or Success.
func failure(gpu *state.GPU, query state.Query) state.Result {
	if gpu.Lost {
		return state.GPUIsLost
	}
	return gpu.Failures[query]
}

// value answers with something that is known from the GPU alone.
func value[T any](of func(*gpu) T) func(*gpu, *T) state.Result {
	return func(g *gpu, out *T) state.Result {
		*out = of(g)
		return state.Success
	}
}

// askText answers with a string, in a buffer of the caller's.
func askText(device C.nvmlDevice_t, query state.Query, buffer *C.char, length C.uint, of func(*gpu) string) C.nvmlReturn_t {
	return ask(device, query, buffer, func(g *gpu, _ *C.char) state.Result { return putText(buffer, length, of(g)) })
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
