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

package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is a mount namespace that a file keeps alive. What is mounted in it
// is not seen outside and disappears with it, so nothing has to be unmounted
// one by one and another Kubernetes on the machine is not disturbed; what is
// mounted outside is seen in it.
type Namespace struct {
	Pin string // on a private mount
}

// Shadow is a folder that processes of the namespace see at a path that they
// have built in.
type Shadow struct{ Path, Source string }

// Exists says whether the namespace is there.
func (n Namespace) Exists() bool {
	var fs unix.Statfs_t
	return unix.Statfs(n.Pin, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

// Create makes the namespace. The shadows' paths must exist.
func (n Namespace) Create(shadows []Shadow) error {
	if err := os.WriteFile(n.Pin, nil, 0o600); err != nil {
		return fmt.Errorf("create %s: %w", n.Pin, err)
	}
	made, pinned := make(chan string), make(chan struct{})
	result := make(chan error, 1)
	go func() {
		result <- onOwnThread(func() error {
			if err := unshared(shadows); err != nil {
				return err
			}
			made <- fmt.Sprintf("/proc/%d/task/%d/ns/mnt", os.Getpid(), unix.Gettid())
			<-pinned // until then this thread is all that keeps the namespace
			return nil
		})
	}()
	select {
	case err := <-result:
		return err
	case ns := <-made:
		err := unix.Mount(ns, n.Pin, "", unix.MS_BIND, "")
		close(pinned)
		if err != nil {
			return fmt.Errorf("pin the node's mount namespace to %s: %w", n.Pin, err)
		}
		return <-result
	}
}

// unshared moves the calling thread to a new namespace.
func unshared(shadows []Shadow) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("create a mount namespace: %w", err)
	}
	// First a slave, so that nothing is sent outside; then shared, so that
	// containers can pass mounts on to each other and to the kubelet.
	for _, propagation := range []uintptr{unix.MS_SLAVE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", unix.MS_REC|propagation, ""); err != nil {
			return fmt.Errorf("set the propagation of the node's mounts: %w", err)
		}
	}
	for _, shadow := range shadows {
		if err := unix.Mount(shadow.Source, shadow.Path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s at %s in the node's namespace: %w", shadow.Source, shadow.Path, err)
		}
	}
	return nil
}

// Do runs fn inside the namespace. Programs that it starts stay there.
func (n Namespace) Do(fn func() error) error {
	ns, err := os.Open(n.Pin)
	if err != nil {
		return fmt.Errorf("open the node's mount namespace: %w", err)
	}
	defer ns.Close()
	return onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("prepare a thread for the node's mount namespace: %w", err)
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter the node's mount namespace %s: %w", n.Pin, err)
		}
		return fn()
	})
}

// Probe says why a namespace cannot be made or used by this process, or nil.
func Probe() error {
	return onOwnThread(func() error {
		if err := unshared(nil); err != nil {
			return err
		}
		if err := unix.Mount("probe", os.TempDir(), "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("mount a tmpfs: %w", err)
		}
		return nil
	})
}

// ProbeOverlay says why an overlay cannot have its layers in dir, or nil.
func ProbeOverlay(dir string) error {
	probe, err := os.MkdirTemp(dir, "overlay-probe-")
	if err != nil {
		return fmt.Errorf("try an overlay: %w", err)
	}
	defer os.RemoveAll(probe)
	var layers []string
	for _, name := range []string{"lowerdir", "upperdir", "workdir"} {
		layer := filepath.Join(probe, name)
		if err := os.Mkdir(layer, 0o700); err != nil {
			return fmt.Errorf("try an overlay: %w", err)
		}
		layers = append(layers, name+"="+layer)
	}
	return onOwnThread(func() error {
		if err := unshared(nil); err != nil {
			return err
		}
		target := filepath.Join(probe, "lowerdir")
		if err := unix.Mount("overlay", target, "overlay", 0, strings.Join(layers, ",")); err != nil {
			return fmt.Errorf("mount an overlay in %s: %w", dir, err)
		}
		return nil
	})
}

// onOwnThread runs fn on a thread that ends with it, because it must not run
// anything else afterwards: its goroutine ends without unlocking it.
func onOwnThread(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			result <- fn()
			return
		}
		// The process's first thread is what /proc/self shows, so it has to stay
		// as it is. While it waits here, fn gets another one.
		result <- onOwnThread(fn)
		runtime.UnlockOSThread()
	}()
	return <-result
}

// ErrNoNamespace is returned for a namespace that does not exist.
var ErrNoNamespace = errors.New("the node's mount namespace does not exist")

// Info identifies the namespace.
func (n Namespace) Info() (os.FileInfo, error) {
	if !n.Exists() {
		return nil, ErrNoNamespace
	}
	info, err := os.Stat(n.Pin)
	if err != nil {
		return nil, fmt.Errorf("look at the node's mount namespace: %w", err)
	}
	return info, nil
}
