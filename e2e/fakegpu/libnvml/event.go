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
	"time"
	"unsafe"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// pollInterval is how often a waiting event set looks at the state.
const pollInterval = 20 * time.Millisecond

// noInstance is what an event that concerns the whole GPU says about
// instances.
const noInstance = 0xFFFFFFFF

// eventSet is what a caller waits on. The library's mutex guards it.
type eventSet struct {
	// gpus are the registered ones.
	gpus map[string]bool
	// delivered is the last event that the caller knows, or that was raised
	// before the caller registered anything.
	delivered uint64
}

//export nvmlEventSetCreate
func nvmlEventSetCreate(out *C.nvmlEventSet_t) C.nvmlReturn_t {
	if _, result := process.current(); result != state.Success {
		return C.nvmlReturn_t(result)
	}
	if out == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	set := C.nvmlEventSet_t(unsafe.Pointer(C.calloc(1, 1)))
	process.mu.Lock()
	defer process.mu.Unlock()
	process.sets[set] = &eventSet{gpus: map[string]bool{}}
	*out = set
	return C.NVML_SUCCESS
}

//export nvmlEventSetFree
func nvmlEventSetFree(set C.nvmlEventSet_t) C.nvmlReturn_t {
	process.mu.Lock()
	defer process.mu.Unlock()
	if process.sets[set] == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	delete(process.sets, set)
	C.free(unsafe.Pointer(set))
	return C.NVML_SUCCESS
}

//export nvmlDeviceGetSupportedEventTypes
func nvmlDeviceGetSupportedEventTypes(device C.nvmlDevice_t, types *C.ulonglong) C.nvmlReturn_t {
	return ask(aboutGPU(device, state.QueryEvents), types,
		value(func(*target) C.ulonglong { return C.nvmlEventTypeXidCriticalError }))
}

//export nvmlDeviceRegisterEvents
func nvmlDeviceRegisterEvents(device C.nvmlDevice_t, types C.ulonglong, set C.nvmlEventSet_t) C.nvmlReturn_t {
	return ask(aboutGPU(device, state.QueryEvents), &set, func(g *target, set *C.nvmlEventSet_t) state.Result {
		if types&^C.nvmlEventTypeXidCriticalError != 0 {
			return state.NotSupported
		}
		process.mu.Lock()
		defer process.mu.Unlock()
		events := process.sets[*set]
		if events == nil {
			return state.InvalidArgument
		}
		if len(events.gpus) == 0 {
			events.delivered = g.node.LastEvent()
		}
		events.gpus[g.UUID] = true
		return state.Success
	})
}

//export nvmlEventSetWait_v2
func nvmlEventSetWait_v2(set C.nvmlEventSet_t, data *C.nvmlEventData_t, timeout C.uint) C.nvmlReturn_t {
	if data == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	deadline := time.Now().Add(time.Duration(timeout) * time.Millisecond)
	for {
		event, found, result := process.nextEvent(set)
		if result != state.Success {
			return C.nvmlReturn_t(result)
		}
		if found {
			*data = C.nvmlEventData_t{
				device: process.device(event.UUID), eventType: C.nvmlEventTypeXidCriticalError,
				eventData: C.ulonglong(event.XID), gpuInstanceId: noInstance, computeInstanceId: noInstance,
			}
			return C.NVML_SUCCESS
		}
		rest := time.Until(deadline)
		if rest <= 0 {
			return C.NVML_ERROR_TIMEOUT
		}
		time.Sleep(min(rest, pollInterval))
	}
}

// nextEvent takes the set's next event, if there is one.
func (l *library) nextEvent(set C.nvmlEventSet_t) (state.Event, bool, state.Result) {
	node, result := l.current()
	if result != state.Success {
		return state.Event{}, false, result
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.sets[set]
	if events == nil {
		return state.Event{}, false, state.InvalidArgument
	}
	event, found := node.NextEvent(events.delivered, events.gpus)
	if found {
		events.delivered = event.Sequence
	}
	return event, found, state.Success
}
