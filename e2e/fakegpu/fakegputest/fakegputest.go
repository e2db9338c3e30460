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

// Package fakegputest gives Go tests a simulated driver root.
package fakegputest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/driverroot"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

const (
	// libraryVariable and a generation tell a child where its parent built the
	// library.
	libraryVariable = "FAKEGPU_TEST_LIBRARY_"
	// childVariable names the test that a child is there for.
	childVariable = "FAKEGPU_TEST_CHILD"
)

// childTimeout is far more than any test here needs.
const childTimeout = 3 * time.Minute

// Driver is a simulated driver root that lives as long as its test.
type Driver struct {
	// Path is the root's directory.
	Path  string
	Store *state.Store
	root  *driverroot.Root
}

// New makes a driver root for one of the catalog's presets.
func New(t testing.TB, preset string) *Driver {
	t.Helper()
	p, err := catalog.LookupPreset(preset)
	if err != nil {
		t.Fatal(err)
	}
	s, err := state.New(p, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "driver-root")
	root := driverroot.At(path)
	d := &Driver{Path: path, Store: state.Open(root.StateDir()), root: root}
	if err := d.Store.Create(s, true, nil); err != nil {
		t.Fatal(err)
	}
	// Tests have no cgroups of their own to limit.
	if err := os.WriteFile(d.AnyDirectory(), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := root.Install(library(t, p.Driver.Generation())); err != nil {
		t.Fatal(err)
	}
	d.Update(t, func(*state.State) error { return nil })
	return d
}

// NVML is the path to load the simulated library from.
func (d *Driver) NVML() string {
	return filepath.Join(d.Path, driverroot.LibDir(), "libnvidia-ml.so.1")
}

// AnyDirectory is the file that lets limits be for any directory. A test that
// removes it needs a cgroup for each.
func (d *Driver) AnyDirectory() string { return filepath.Join(d.root.StateDir(), state.AnyDirectory) }

// Update changes the state, and the root's files with it, as the fakegpu
// command does.
func (d *Driver) Update(t testing.TB, change func(*state.State) error) {
	t.Helper()
	err := d.Store.Update(func(s *state.State) error {
		if err := change(s); err != nil {
			return err
		}
		return d.root.Sync(s)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// UpdateGPU changes one GPU, named by index, UUID or PCI address.
func (d *Driver) UpdateGPU(t testing.TB, name string, change func(*state.GPU)) {
	t.Helper()
	d.Update(t, func(s *state.State) error {
		gpu, err := s.Find(name)
		if err != nil {
			return err
		}
		change(gpu)
		return nil
	})
}

// builds compile each generation of the library once per process. They are kept
// in memory, because no test outlives the others to clean up after all.
var builds = map[string]func() ([]byte, error){
	"r580": sync.OnceValues(func() ([]byte, error) { return build("r580") }),
	"r615": sync.OnceValues(func() ([]byte, error) { return build("r615") }),
}

func build(generation string) ([]byte, error) {
	if path := os.Getenv(libraryVariable + generation); path != "" {
		return os.ReadFile(path)
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the module: %w", err)
	}
	dir, err := os.MkdirTemp("", "libnvml-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	library := filepath.Join(dir, "libnvidia-ml.so")
	script := filepath.Join(strings.TrimSpace(string(module)), "e2e/fakegpu/libnvml/build.sh")
	if output, err := exec.Command(script, library, generation).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the simulated library: %w\n%s", err, output)
	}
	return os.ReadFile(library)
}

// Library is a file with the simulated library of a driver that limits no
// cgroups.
func Library(t testing.TB) string { return library(t, "r580") }

func library(t testing.TB, generation string) string {
	t.Helper()
	content, err := builds[generation]()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Isolate runs the body of a test in a process of its own: go-nvml resolves
// its symbols once, so a process has one NVML library for good.
func Isolate(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	if os.Getenv(childVariable) == t.Name() {
		body(t)
		return
	}
	arguments := []string{"-test.run=" + pattern(t.Name()), "-test.v"}
	for _, argument := range os.Args[1:] {
		// The test's own flags, such as -update, are the child's too.
		if !strings.HasPrefix(argument, "-test.") {
			arguments = append(arguments, argument)
		}
	}
	// A child whose runtime is stuck cannot end itself.
	ctx, cancel := context.WithTimeout(t.Context(), childTimeout)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], arguments...)
	// A race-enabled program sleeps for a second at its end by default.
	child.Env = append([]string{"GORACE=atexit_sleep_ms=0"}, os.Environ()...)
	child.Env = append(child.Env, childVariable+"="+t.Name(), libraryVariable+"r580="+Library(t))
	output, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()+" ") {
		t.Errorf("in a process of its own: %v\n%s", err, output)
	}
}

// pattern matches one test, whatever its depth.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + part + "$"
	}
	return strings.Join(parts, "/")
}
