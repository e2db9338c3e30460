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
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// dir is short, as the paths of sockets have to be.
func dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hook")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// serve has a server run until the function that it returns is called.
func serve(t *testing.T, path string, handle func(context.Context, Request) error) (stop func()) {
	t.Helper()
	before, _ := os.Lstat(path)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Server{Path: path, Handle: handle, Failed: func(err error) { t.Logf("failed: %v", err) }}.Serve(ctx)
	}()
	for {
		if now, err := os.Lstat(path); err == nil && (before == nil || !os.SameFile(before, now)) {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended with %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("asked to stop, it ended with %v", err)
		}
	}
}

func TestCall(t *testing.T) {
	path := filepath.Join(dir(t), "hook.sock")
	var got Request
	answer := error(nil)
	stop := serve(t, path, func(_ context.Context, r Request) error {
		got = r
		return answer
	})
	defer stop()
	want := Request{Claim: "uid", Device: 2, PID: 4711}
	if err := Call(t.Context(), path, want); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	answer = errors.New("no\nGPU:  " + strings.Repeat("x", 2*maxMessage))
	err := Call(t.Context(), path, want)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no GPU: xxx") || len(err.Error()) > maxMessage {
		t.Errorf("a refusal is %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v: not only root may ask", info.Mode(), err)
	}
}

func TestCallFails(t *testing.T) {
	path := filepath.Join(dir(t), "hook.sock")
	for name, prepare := range map[string]func(*testing.T){
		"no socket": func(*testing.T) {},
		"nobody listens": func(t *testing.T) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
		},
		"it hangs up": func(t *testing.T) {
			accept(t, path, func(c net.Conn) { c.Close() })
		},
		"it says nothing": func(t *testing.T) {
			accept(t, path, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		},
		"it says something else": func(t *testing.T) {
			accept(t, path, func(c net.Conn) {
				_, _ = c.Write(bytes.Repeat([]byte("x"), 2*maxMessage))
				c.Close()
			})
		},
		"it says more than is known": func(t *testing.T) {
			accept(t, path, func(c net.Conn) {
				_, _ = c.Write([]byte(`{"ok":true}`))
				c.Close()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			os.Remove(path)
			prepare(t)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err := Call(ctx, path, Request{Claim: "a", PID: 1})
			if err == nil || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want an error with the socket's path", err)
			}
		})
	}
}

// accept has a listener do something with its first connection.
func accept(t *testing.T, path string, do func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		if c, err := l.Accept(); err == nil {
			do(c)
		}
	}()
}

// During an update the newcomer answers, and the one that it replaces leaves the
// socket alone when it ends.
func TestTakeover(t *testing.T) {
	path := filepath.Join(dir(t), "hook.sock")
	by := make(chan string, 1)
	as := func(name string) func(context.Context, Request) error {
		return func(context.Context, Request) error {
			by <- name
			return nil
		}
	}
	ask := func() string {
		t.Helper()
		if err := Call(t.Context(), path, Request{Claim: "a", PID: 1}); err != nil {
			t.Fatal(err)
		}
		return <-by
	}
	stopOld := serve(t, path, as("old"))
	if got := ask(); got != "old" {
		t.Errorf("%s answered", got)
	}
	stopNew := serve(t, path, as("new"))
	if got := ask(); got != "new" {
		t.Errorf("%s answered beside the newcomer", got)
	}
	stopOld()
	if got := ask(); got != "new" {
		t.Errorf("%s answered after the old one had ended", got)
	}
	stopNew()
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// One that asks for nothing is in nobody's way.
func TestServerGoesOn(t *testing.T) {
	path := filepath.Join(dir(t), "hook.sock")
	stop := serve(t, path, func(context.Context, Request) error { return nil })
	defer stop()
	for _, text := range []string{"", "{", "[]\n", `{"claim":"a","pid":1,"more":1}` + "\n", strings.Repeat(" ", 2*maxMessage)} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text))
		if text == "" {
			defer conn.Close() // it says nothing for as long as it likes
			continue
		}
		conn.Close()
	}
	if err := Call(t.Context(), path, Request{Claim: "a", PID: 1}); err != nil {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"claim":"8a1f0d3e-5b1c-4c0e-9a57-0f5b0c3d2e1a","device":1,"pid":4711}`))
	f.Add([]byte(`{"claim":"a"`))
	f.Add([]byte(`{"claim":"a","pid":-1,"pid":1e9}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Request
		in := &counter{data: data}
		_ = read(in, &r)
		if in.read > maxMessage {
			t.Errorf("%d bytes were read", in.read)
		}
	})
}

// counter counts what is read of it.
type counter struct {
	data []byte
	read int
}

func (c *counter) Read(p []byte) (int, error) {
	if c.read >= len(c.data) {
		return 0, io.EOF
	}
	n := copy(p, c.data[c.read:])
	c.read += n
	return n, nil
}
