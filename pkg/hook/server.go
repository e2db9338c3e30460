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

package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is how long one request may take, reading and answering included.
const patience = 15 * time.Second

// Server answers hooks on a socket of root's.
type Server struct {
	// Path is that of the socket. The last server to listen there has it: during
	// an update two plugins live at once.
	Path string

	// Handle consents, or returns why not.
	Handle func(context.Context, Request) error

	// Failed is told of connections that came to nothing.
	Failed func(error)
}

// Serve answers until ctx is done, which is no error.
func (s Server) Serve(ctx context.Context) error {
	listener, err := s.listen()
	if err != nil {
		return err
	}
	own, err := os.Lstat(s.Path)
	if err != nil {
		return errors.Join(fmt.Errorf("look at the socket for hooks: %w", err), listener.Close())
	}
	var answers sync.WaitGroup
	defer answers.Wait()
	stop := context.AfterFunc(ctx, func() {
		if now, err := os.Lstat(s.Path); err == nil && os.SameFile(own, now) {
			_ = os.Remove(s.Path)
		}
		_ = listener.Close()
	})
	defer stop()
	for {
		conn, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a hook on %s: %w", s.Path, err)
		}
		answers.Go(func() {
			if err := s.answer(ctx, conn); err != nil {
				s.Failed(err)
			}
		})
	}
}

// listen takes the path over from whoever has it, without a moment in which
// nobody does.
func (s Server) listen() (*net.UnixListener, error) {
	temp, err := os.MkdirTemp(filepath.Dir(s.Path), ".hook-")
	if err != nil {
		return nil, fmt.Errorf("make the socket for hooks: %w", err)
	}
	defer os.RemoveAll(temp) // which nobody but root can enter
	next := filepath.Join(temp, "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: next, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the socket for hooks: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	if err = os.Chmod(next, 0o600); err == nil {
		err = os.Rename(next, s.Path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the socket for hooks: %w", err), listener.Close())
	}
	return listener, nil
}

func (s Server) answer(ctx context.Context, conn *net.UnixConn) error {
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("limit the time of a hook: %w", err)
	}
	if err := allowed(conn); err != nil {
		return err
	}
	var r Request
	if err := read(conn, &r); err != nil {
		return fmt.Errorf("read what a hook asks for: %w", err)
	}
	var a answer
	if err := s.Handle(ctx, r); err != nil {
		a.Error = oneLine(err.Error())
	}
	if err := json.NewEncoder(conn).Encode(a); err != nil {
		return fmt.Errorf("answer a hook: %w", err)
	}
	return nil
}

// allowed refuses who is neither root nor who runs this process.
func allowed(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("find out who asks: %w", err)
	}
	var peer *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("find out who asks: %w", err)
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("process %d of user %d asked for limits, which only root may", peer.Pid, peer.Uid)
	}
	return nil
}

// oneLine is fit for an event, and for a message's size.
func oneLine(text string) string {
	const most = maxMessage / 2
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}
