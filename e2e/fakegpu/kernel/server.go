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

package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// SocketName is that of the socket, in the state's directory.
const SocketName = "kernel.sock"

// Server is the simulated kernel driver.
type Server struct {
	Store *state.Store
	// Machine is where processes are looked up.
	Machine Machine
	// Log is told who opens a GPU, and what is refused.
	Log *log.Logger
}

// Listen makes the socket in a directory, whose path may be longer than that of
// a socket can be. Anybody may connect, as anybody may open a GPU's device node
// who has it; NVIDIA's container toolkit takes it for a program.
func Listen(dir string) (*net.UnixListener, error) {
	at, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the state's directory: %w", err)
	}
	defer at.Close()
	path := filepath.Join("/proc/self/fd", fmt.Sprint(at.Fd()), SocketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove a former socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the socket %s: %w", filepath.Join(dir, SocketName), err)
	}
	listener.SetUnlinkOnClose(false)
	return listener, os.Chmod(path, 0o777)
}

// Serve gives out memory until ctx is done.
func (s *Server) Serve(ctx context.Context, listener *net.UnixListener) error {
	if err := s.forget(func(string, state.Process) bool { return true }); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var programs sync.WaitGroup
	defer programs.Wait()
	for {
		conn, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a program: %w", err)
		}
		programs.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			defer conn.Close()
			if err := s.serve(conn); err != nil {
				s.Log.Print(err)
			}
		})
	}
}

// forget takes programs off the GPUs, by UUID, that came by a connection.
func (s *Server) forget(who func(uuid string, p state.Process) bool) error {
	return s.Store.Update(func(node *state.State) error {
		for i := range node.GPUs {
			node.GPUs[i].Processes = slices.DeleteFunc(node.GPUs[i].Processes, func(p state.Process) bool {
				return len(p.Cgroups) > 0 && who(node.GPUs[i].UUID, p)
			})
		}
		return nil
	})
}

// program is one that has a GPU open.
type program struct {
	*Server
	process state.Process
	uuid    string
}

func (s *Server) serve(conn *net.UnixConn) error {
	pid, err := peer(conn)
	if err != nil {
		return err
	}
	p := program{Server: s}
	if p.process, err = s.Machine.process(pid); err != nil {
		return err
	}
	defer func() {
		if p.uuid == "" {
			return
		}
		s.Log.Printf("process %d (%s) closes GPU %s", pid, p.process.Name, p.uuid)
		if err := s.forget(func(uuid string, other state.Process) bool { return uuid == p.uuid && other.PID == p.process.PID }); err != nil {
			s.Log.Print(err)
		}
	}()
	in, out := json.NewDecoder(io.LimitReader(conn, 1<<30)), json.NewEncoder(conn)
	for {
		var r request
		if err := in.Decode(&r); err != nil {
			return nil // it has closed the GPU, or ended
		}
		if err := out.Encode(p.do(r)); err != nil {
			return nil
		}
	}
}

func (p *program) do(r request) answer {
	var view View
	err := p.Store.Update(func(node *state.State) error {
		gpu, err := p.gpu(node, r)
		if err != nil {
			return err
		}
		model, err := catalog.Lookup(gpu.Model)
		if err != nil {
			return err
		}
		usable := model.MemoryBytes - model.ReservedBytes
		switch r.Operation {
		case Open, Allocate:
			gpu.DropLimits(p.Machine.exists())
			err = gpu.Allocate(p.process, r.Bytes, usable)
		case Free:
			gpu.Free(p.process.PID, r.Bytes)
		}
		if err != nil {
			return err
		}
		view = View{UUID: gpu.UUID, Total: model.MemoryBytes, Left: gpu.Left(p.process.Cgroups, usable)}
		// A limit of a cgroup above its own is not visible to a program.
		if limit, _, found := gpu.LimitOf(p.process.Cgroups[0]); found && limit.Hard != state.Unlimited {
			view.Total = limit.Hard
		}
		return nil
	})
	var refusal *state.Refusal
	switch {
	case err == nil:
		return answer{View: view}
	case errors.As(err, &refusal):
		p.Log.Printf("process %d (%s): %s: %v", p.process.PID, p.process.Name, r.Operation, err)
		return answer{Result: refusal.Result, Reason: refusal.Reason}
	}
	return answer{Result: state.Unknown, Reason: err.Error()}
}

// gpu is the one that the program has open, or is to open.
func (p *program) gpu(node *state.State, r request) (*state.GPU, error) {
	if !node.Driver.Loaded {
		return nil, &state.Refusal{Result: state.DriverNotLoaded, Reason: "the driver is not loaded"}
	}
	for _, gpu := range node.Present() {
		switch {
		case r.Operation == Open && p.uuid == "" && gpu.Minor == r.Minor:
			p.uuid = gpu.UUID
			p.Log.Printf("process %d (%s) opens GPU %s, in cgroup %s", p.process.PID, p.process.Name, gpu.UUID, p.process.Cgroups[0].Path)
		case r.Operation == Open || gpu.UUID != p.uuid:
			continue
		}
		if gpu.Lost {
			return nil, &state.Refusal{Result: state.GPUIsLost, Reason: "GPU " + gpu.UUID + " is lost"}
		}
		return gpu, nil
	}
	return nil, &state.Refusal{Result: state.NotFound, Reason: "no such GPU"}
}

func peer(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		credentials, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, failed); err != nil {
		return 0, fmt.Errorf("find out who connects: %w", err)
	}
	return int(credentials.Pid), nil
}
