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

package driverroot

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Containers get the kernel driver's socket as a file of the driver.
func TestKernelSocket(t *testing.T) {
	root, s := newRoot(t, "t4")
	linked, socket := root.join(KernelSocket), filepath.Join(root.StateDir(), "kernel.sock")
	absent := func(when string) {
		t.Helper()
		if _, err := os.Lstat(linked); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %s: %v", when, linked, err)
		}
	}
	present := func(when string) {
		t.Helper()
		a, errA := os.Lstat(socket)
		b, errB := os.Lstat(linked)
		if err := errors.Join(errA, errB); err != nil {
			t.Errorf("%s: %v", when, err)
		} else if !os.SameFile(a, b) || b.Mode().Type() != fs.ModeSocket {
			t.Errorf("%s: %s is %v, not the socket", when, linked, b.Mode())
		}
	}
	// A socket's path has little room.
	t.Chdir(root.StateDir())
	listen := func() {
		t.Helper()
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: "kernel.sock", Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		listener.SetUnlinkOnClose(false)
		t.Cleanup(func() { _ = listener.Close() })
	}
	absent("without a kernel")
	listen()
	sync(t, root, s)
	present("with a kernel")
	sync(t, root, s)
	present("the second time")
	if err := root.Clear(); err != nil {
		t.Fatal(err)
	}
	absent("after Clear")
	sync(t, root, s)
	present("after Clear and Sync")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	listen()
	sync(t, root, s)
	present("with another kernel")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	sync(t, root, s)
	absent("when the kernel is gone")
}
