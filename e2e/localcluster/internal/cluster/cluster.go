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

// Package cluster brings a local cluster up and down and reports on it. It
// decides in which order things happen; how each is done is in the packages
// below it.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/memslice/memslice/e2e/localcluster/internal/layout"
	"github.com/memslice/memslice/e2e/localcluster/internal/mounts"
	"github.com/memslice/memslice/e2e/localcluster/internal/state"
)

// MarkerEnv is set, to the cluster's folder, in the environment of every process
// of a cluster. Down ends all processes that have it, also those that were
// started by others for the cluster.
const MarkerEnv = "MEMSLICE_CLUSTER"

// Cluster is the one in a folder, up or not.
type Cluster struct {
	layout layout.Layout
	bin    string
	out    io.Writer
	began  time.Time
}

// New returns the cluster in dir, with programs from bin. Progress is written to
// out.
func New(dir, bin string, out io.Writer) (*Cluster, error) {
	dir, err := canonical(dir)
	if err != nil {
		return nil, err
	}
	bin, err = filepath.Abs(bin)
	if err != nil {
		return nil, fmt.Errorf("find the folder of programs %s: %w", bin, err)
	}
	return &Cluster{layout: layout.New(dir, shortParent()), bin: bin, out: out, began: time.Now()}, nil
}

// canonical makes a path absolute and free of symlinks, so that one folder is
// one cluster however it is named. Its end need not exist.
func canonical(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the cluster's folder: %w", err)
	}
	rest := ""
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, os.ErrNotExist) || path == "/" {
			return "", fmt.Errorf("find the cluster's folder: %w", err)
		}
		rest = filepath.Join(filepath.Base(path), rest)
		path = filepath.Dir(path)
	}
}

// shortParent is where this user can make a short name.
func shortParent() string {
	if os.Geteuid() == 0 {
		return "/run"
	}
	return "/tmp" // the name of a user's own folder is too long already
}

func (c *Cluster) say(format string, args ...any) {
	fmt.Fprintf(c.out, "[%5.1fs] %s\n", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

func (c *Cluster) program(name string) string { return filepath.Join(c.bin, name) }

func (c *Cluster) namespace() mounts.Namespace { return mounts.Namespace{Pin: c.layout.Namespace()} }

// marker is the variable that the cluster's processes have.
func (c *Cluster) marker() string { return MarkerEnv + "=" + c.layout.Dir }

// load reads the state and takes over the short name that was made then: another
// user's would be elsewhere.
func (c *Cluster) load() (*state.State, error) {
	s, err := state.Load(c.layout.State())
	if s != nil {
		c.layout.Short = s.Short
	}
	return s, err
}

// lock keeps others from bringing the cluster up or down meanwhile. The folder
// must exist.
func (c *Cluster) lock(ctx context.Context) (unlock func(), err error) {
	for waiting := false; ; {
		dir, err := os.Open(c.layout.Dir)
		if err != nil {
			return nil, fmt.Errorf("lock the cluster: %w", err)
		}
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && c.current(dir) {
			return func() { _ = dir.Close() }, nil
		}
		_ = dir.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", c.layout.Dir, err)
		}
		if err != nil && !waiting {
			waiting = true
			c.say("waiting for another localcluster that is busy with %s", c.layout.Dir)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// current says whether an open folder is still the one at its path: another
// process may have removed it while this one waited.
func (c *Cluster) current(dir *os.File) bool {
	open, err := dir.Stat()
	if err != nil {
		return false
	}
	info, err := os.Stat(c.layout.Dir)
	return err == nil && os.SameFile(open, info)
}

// mine refuses what belongs to another user, whose processes cannot be seen or
// ended.
func (c *Cluster) mine() error {
	info, err := os.Stat(c.layout.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the cluster's folder: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() == 0 || int(owner.Uid) == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("the cluster in %s belongs to user %d: run this as that user", c.layout.Dir, owner.Uid)
}

// tail returns the last lines of a file, indented.
func tail(file string, lines int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "    (" + err.Error() + ")"
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "    " + strings.Join(all, "\n    ")
}
