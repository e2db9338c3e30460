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

// Command libnvml is a libnvidia-ml.so.1 that answers from the state of a
// simulated driver root. Its exported functions are NVML's: each turns C
// arguments into a question, and the answer into C. What is true of a GPU is
// in packages state and catalog; a new function is one more export.
//
// It is built with -buildmode=c-shared and needs NVIDIA's nvml.h, which build.sh
// finds in the go-nvml module. Hence the build tag.
package main

/*
#include "shim.h"
*/
import "C"

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// stateDir is where the state is below the driver root.
const stateDir = "var/lib/fakegpu"

// library is what NVML keeps per process.
type library struct {
	mu sync.Mutex
	// users counts nvmlInit calls without nvmlShutdown.
	users   int
	store   *state.Store
	handles handles
	sets    map[C.nvmlEventSet_t]*eventSet
}

// process is the one library of this process: the C API has no place to keep
// it in.
var process = &library{
	handles: newHandles(),
	sets:    map[C.nvmlEventSet_t]*eventSet{},
}

func main() {}

// open begins a use of the library, which needs a loaded driver.
func (l *library) open() state.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store == nil {
		C.fakegpu_return_signals()
		l.store = state.Open(findStateDir())
	}
	if _, result := load(l.store); result != state.Success {
		return result
	}
	l.users++
	return state.Success
}

// close ends a use of the library.
func (l *library) close() state.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users == 0 {
		return state.Uninitialized
	}
	l.users--
	return state.Success
}

// current is the state as it is now, unless the library is not in use or the
// driver was unloaded.
func (l *library) current() (*state.State, state.Result) {
	l.mu.Lock()
	used, store := l.users > 0, l.store
	l.mu.Unlock()
	if !used {
		return nil, state.Uninitialized
	}
	return load(store)
}

// load is the state of a driver that is loaded and that this library is for.
func load(store *state.Store) (*state.State, state.Result) {
	current, err := store.Load()
	if err != nil || !current.Driver.Loaded {
		return nil, state.DriverNotLoaded
	}
	if (catalog.Driver{Version: current.Driver.Version}).Generation() != generation {
		return nil, state.VersionMismatch
	}
	return current, state.Success
}

// findStateDir looks upwards from the library's own file, because the driver
// root has another path in every container that it is mounted into.
func findStateDir() string {
	path := C.GoString(C.fakegpu_library_path())
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		candidate := filepath.Join(dir, stateDir)
		if info, err := os.Stat(candidate); err == nil && info.IsDir() {
			return candidate
		}
		if dir == filepath.Dir(dir) {
			return candidate
		}
	}
}
