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

package kernel_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/kernel"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// cudaload is the program, built once.
var cudaload = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "cudaload")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "cudaload")
	command := exec.Command("go", "build", "-o", program, "../cmd/cudaload")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := command.CombinedOutput()
	if err != nil {
		return string(out), err
	}
	return program, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if program, err := cudaload(); err == nil {
		os.RemoveAll(filepath.Dir(program))
	}
	os.Exit(code)
}

// world has two GPUs, and the cgroup that this process and its children are in.
type world struct {
	store       *state.Store
	socket, dev string
	cgroup      state.Cgroup
	program     string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	program, err := cudaload()
	if err != nil {
		t.Fatal(err, program)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, name, ok := strings.Cut("\n"+string(own), "\n0::")
	if !ok {
		t.Skip("this machine has no cgroups of version 2")
	}
	name, _, _ = strings.Cut(name, "\n")
	cgroups, dir := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(cgroups, name), 0o755); err != nil {
		t.Fatal(err)
	}
	w := &world{program: program, dev: t.TempDir(), store: state.Open(dir), socket: filepath.Join(dir, kernel.SocketName)}
	if w.cgroup, err = state.CgroupAt(filepath.Join(cgroups, name)); err != nil {
		t.Fatal(err)
	}
	preset, err := catalog.LookupPreset("h100x8-r615")
	if err != nil {
		t.Fatal(err)
	}
	document, err := state.New(preset, 2, "")
	if err != nil {
		t.Fatal(err)
	}
	// One that a former kernel has left.
	document.GPUs[0].Processes = []state.Process{{PID: 1, Name: "ghost", MemoryBytes: 1 << 30, Cgroups: []state.Cgroup{w.cgroup}}}
	if err := w.store.Create(document, true, nil); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"nvidia0", "nvidia1", "nvidiactl"} {
		if err := os.WriteFile(filepath.Join(w.dev, node), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := kernel.Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	w.serve(t, listener, cgroups)
	return w
}

func (w *world) serve(t *testing.T, listener *net.UnixListener, cgroups string) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	server := kernel.Server{Store: w.store, Machine: kernel.Machine{Proc: "/proc", Cgroup: cgroups}, Log: log.New(testWriter{t}, "", 0)}
	go func() { ended <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the kernel ended with %v", err)
		}
	})
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (w *world) limit(t *testing.T, bytes uint64) {
	t.Helper()
	err := w.store.Update(func(s *state.State) error { return s.GPUs[0].SetLimit(w.cgroup, 0, bytes, 1<<40) })
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) command(args ...string) *exec.Cmd {
	return exec.Command(w.program, append([]string{"--socket", w.socket, "--dev", w.dev}, args...)...)
}

// run is a program that ends.
func (w *world) run(args ...string) (said string, code int) {
	out, err := w.command(args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		return err.Error(), -1
	}
	return string(out), 0
}

// start is one that goes on, and returns when it has said something.
func (w *world) start(t *testing.T, word string, args ...string) *exec.Cmd {
	t.Helper()
	command := w.command(args...)
	said := &buffer{}
	command.Stdout, command.Stderr = said, said
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	// With its children, which have its output.
	t.Cleanup(func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL); <-ended })
	for !strings.Contains(said.String(), word) {
		select {
		case <-ended:
			t.Fatalf("it ended, and said %s", said)
		case <-time.After(time.Millisecond):
		}
	}
	return command
}

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// used is what the processes on a GPU have.
func (w *world) used(t *testing.T, gpu int) (bytes uint64) {
	t.Helper()
	s, err := w.store.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.GPUs[gpu].Processes {
		bytes += p.MemoryBytes
	}
	return bytes
}

// awaitFree waits until nobody has anything of a GPU.
func (w *world) awaitFree(t *testing.T, gpu int) {
	t.Helper()
	for w.used(t, gpu) != 0 {
		time.Sleep(time.Millisecond)
	}
}

const gi = 1 << 30

func TestCUDALoad(t *testing.T) {
	for name, tc := range map[string]struct {
		limit uint64
		args  []string
		code  int
		says  []string
	}{
		"it fits":                   {limit: 4 * gi, args: []string{"--allocate", "3840Mi"}, says: []string{"allocated 3840Mi on GPU 0 (GPU-"}},
		"one MiB too much":          {limit: 4 * gi, args: []string{"--allocate", "3841Mi"}, code: 2, says: []string{"out of memory: cuMemAlloc of 3841Mi on GPU 0 (GPU-", "allocated 0 beside a context of 256Mi", "CUDA_ERROR_OUT_OF_MEMORY"}},
		"step by step":              {limit: 4 * gi, args: []string{"--allocate", "8Gi", "--step", "1Gi"}, code: 2, says: []string{"allocated 3Gi beside"}},
		"no room for a context":     {limit: 1 << 20, args: []string{"--allocate", "1"}, code: 2, says: []string{"cuCtxCreate"}},
		"no environment":            {limit: 4 * gi, args: []string{"--unset", "--allocate", "3841Mi"}, code: 2, says: []string{"out of memory"}},
		"children together":         {limit: 4 * gi, args: []string{"--fork", "2", "--allocate", "2Gi", "--hold", "1h"}, code: -1},
		"another GPU's":             {limit: 4 * gi, args: []string{"--gpu", "1", "--allocate", "8Gi"}, says: []string{"allocated 8Gi on GPU 1 (GPU-"}},
		"no limit":                  {args: []string{"--allocate", "60Gi"}},
		"more than the card has":    {args: []string{"--allocate", "90Gi"}, code: 2, says: []string{"out of memory"}},
		"a GPU that there is not":   {args: []string{"--gpu", "2", "--allocate", "1Gi"}, code: 1, says: []string{"no GPU has the number 2"}},
		"nonsense":                  {args: []string{"--allocate", "lots"}, code: 1},
		"what is seen":              {limit: 4 * gi, args: []string{"info"}, says: []string{"total 4Gi, free 4Gi"}},
		"what is seen of the other": {limit: 4 * gi, args: []string{"info", "--gpu", "1"}, says: []string{"total 81559Mi, free 81043Mi"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.awaitFree(t, 0) // the ghost is gone
			if tc.limit > 0 {
				w.limit(t, tc.limit)
			}
			if tc.code == -1 {
				w.start(t, "out of memory", tc.args...)
				return
			}
			said, code := w.run(tc.args...)
			if code != tc.code {
				t.Errorf("it ended with %d, want %d: %s", code, tc.code, said)
			}
			for _, word := range tc.says {
				if !strings.Contains(said, word) {
					t.Errorf("it said %q, want %q", said, word)
				}
			}
			w.awaitFree(t, 0)
			w.awaitFree(t, 1)
		})
	}
}

// What a process had is free when it ends, however it ends.
func TestEndFrees(t *testing.T) {
	w := newWorld(t)
	w.awaitFree(t, 0)
	w.limit(t, 4*gi)
	holder := w.start(t, "holding", "--allocate", "3840Mi", "--hold", "forever")
	if said, code := w.run("--allocate", "1Mi"); code != 2 {
		t.Errorf("beside a holder: %d, %s", code, said)
	}
	if got := w.used(t, 0); got != 4*gi {
		t.Errorf("in use are %d", got)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.awaitFree(t, 0)
	if said, code := w.run("--allocate", "3840Mi"); code != 0 {
		t.Errorf("after the holder was killed: %d, %s", code, said)
	}
}

func TestLoop(t *testing.T) {
	w := newWorld(t)
	w.awaitFree(t, 0)
	w.limit(t, 4*gi)
	w.start(t, "out of memory", "--loop", "--allocate", "8Gi", "--step", "1Gi", "--every", "1ms")
	w.limit(t, state.Unlimited)
	w.start(t, "allocated 8Gi", "--loop", "--allocate", "8Gi")
}

func TestDriverUnloaded(t *testing.T) {
	w := newWorld(t)
	if err := w.store.Update(func(s *state.State) error { s.UnloadDriver(); return nil }); err != nil {
		t.Fatal(err)
	}
	if said, code := w.run("--allocate", "1Gi"); code != 1 || !strings.Contains(said, "not loaded") {
		t.Errorf("without a driver: %d, %s", code, said)
	}
}
