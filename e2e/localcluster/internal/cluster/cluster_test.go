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

package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/memslice/memslice/e2e/localcluster/internal/host"
	"github.com/memslice/memslice/e2e/localcluster/internal/layout"
	"github.com/memslice/memslice/e2e/localcluster/internal/pki"
	"github.com/memslice/memslice/e2e/localcluster/internal/render"
	"github.com/memslice/memslice/e2e/localcluster/internal/state"
)

// fixture is a cluster whose short name is in a test's folder too.
func fixture(t *testing.T) (*Cluster, *bytes.Buffer) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	return &Cluster{layout: layout.New(filepath.Join(dir, "cluster"), dir), bin: dir, out: &out, began: time.Now()}, &out
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// One folder is one cluster, however it is named and whether it exists or not.
func TestCanonical(t *testing.T) {
	parent, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(parent, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(parent, "link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(parent)
	want := filepath.Join(parent, "real", "a", "b")
	for _, name := range []string{want, filepath.Join(parent, "link", "a", "b"), "link/a/b", "real/x/../a/b/"} {
		for _, exists := range []bool{false, true} {
			if exists {
				if err := os.MkdirAll(want, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := canonical(name); err != nil || got != want {
				t.Errorf("%s (exists: %v): %s, %v, want %s", name, exists, got, err, want)
			}
		}
		if err := os.RemoveAll(filepath.Join(parent, "real", "a")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAgree(t *testing.T) {
	s := &state.State{Settings: render.Settings{NodeName: "localhost", FeatureGates: "A=true"}, KubernetesVersion: "1.37.2", Node: state.Real}
	text := func(s string) *string { return &s }
	mode := func(m host.Mode) *host.Mode { return &m }
	for _, tt := range []struct {
		name string
		o    Options
		err  string
	}{
		{"nothing given", Options{}, ""},
		{"the same", Options{NodeName: text("localhost"), FeatureGates: text("A=true"), RuntimeConfig: text(""), KubernetesVersion: text("1.37.2"), Node: mode(host.Real)}, ""},
		{"auto takes what is there", Options{Node: mode(host.Auto)}, ""},
		{"another name", Options{NodeName: text("n")}, `--node-name=n: the cluster exists with "localhost"`},
		{"other gates", Options{FeatureGates: text("")}, `--feature-gates=: the cluster exists with "A=true"`},
		{"other APIs", Options{RuntimeConfig: text("x")}, `--runtime-config=x: the cluster exists with ""`},
		{"another version", Options{KubernetesVersion: text("1.36.0")}, `--kubernetes-version=1.36.0: the cluster exists with "1.37.2"`},
		{"no node", Options{Node: mode(host.None)}, `--node=none: the cluster exists with "real"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := agree(s, tt.o)
			if (tt.err == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestLock(t *testing.T) {
	c, out := fixture(t)
	if err := os.Mkdir(c.layout.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := c.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.lock(impatient); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("locked twice: %v", err)
	}
	if !strings.Contains(out.String(), "waiting for another") {
		t.Errorf("the user is not told to wait: %q", out)
	}
	unlock()
	if unlock, err = c.lock(t.Context()); err != nil {
		t.Fatalf("lock after unlock: %v", err)
	}
	unlock()
}

// Down of a cluster that never existed, or has only files, needs no root and
// touches nothing else.
func TestDownWithoutProcesses(t *testing.T) {
	c, _ := fixture(t)
	for range 2 {
		if err := c.Down(t.Context()); err != nil {
			t.Fatalf("no cluster: %v", err)
		}
	}
	write(t, c.layout.State(), `{"node": "no`)
	write(t, c.layout.PID(etcd), `{"pid": 1`)
	write(t, c.layout.Log(etcd), "x\n")
	if err := c.Down(t.Context()); err != nil {
		t.Fatalf("damaged files: %v", err)
	}
	if _, err := os.Stat(c.layout.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestDownKeepsOtherFiles(t *testing.T) {
	c, out := fixture(t)
	foreign := filepath.Join(c.layout.Dir, "thesis.txt")
	write(t, foreign, "years of work")
	write(t, c.layout.Log(etcd), "x\n")
	if err := c.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("removed what was not the cluster's: %v", err)
	}
	if _, err := os.Stat(c.layout.LogDir()); err == nil {
		t.Error("the cluster's files are still there")
	}
	if !strings.Contains(out.String(), "thesis.txt") {
		t.Errorf("the user is not told what was left: %s", out)
	}
}

func TestUntilReportsTheLog(t *testing.T) {
	c, _ := fixture(t)
	write(t, c.layout.Log(etcd), strings.Repeat("early\n", 50)+"the reason\n")
	err := c.until(t.Context(), etcd, time.Hour, func(context.Context) error { return errEnded })
	for _, want := range []string{etcd, "ended", c.layout.Log(etcd), "the reason"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not tell %q", err, want)
		}
	}
	if n := strings.Count(err.Error(), "early"); n != tailLines-1 {
		t.Errorf("%d earlier lines", n)
	}
	err = c.until(t.Context(), etcd, 0, func(context.Context) error { return errors.New("too slow") })
	if err == nil || !strings.Contains(err.Error(), "too slow") {
		t.Errorf("no time left: %v", err)
	}
	calls := 0
	err = c.until(t.Context(), etcd, time.Hour, func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// Keys stay the same when a cluster is completed; a set that was cut short is
// made anew.
func TestCertificates(t *testing.T) {
	c, _ := fixture(t)
	s := &state.State{Settings: render.Settings{NodeName: "n"}}
	read := func() string {
		data, err := os.ReadFile(c.layout.PKI(render.CAFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if _, err := pki.NewCA("left from before", c.layout.PKI("new-"+render.CAFile), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := c.certificates(s); err != nil {
		t.Fatal(err)
	}
	first := read()
	if err := c.certificates(s); err != nil || read() != first {
		t.Errorf("made anew: %v", err)
	}
	if _, err := newClient(c.layout, s); err != nil {
		t.Errorf("the set is not complete: %v", err)
	}
}

func TestLog(t *testing.T) {
	c, _ := fixture(t)
	write(t, c.layout.Log(etcd), "1\n2\n3\n")
	for lines, want := range map[int]string{0: "1\n2\n3\n", 1: "3\n", 2: "2\n3\n", 9: "1\n2\n3\n"} {
		if got, err := c.Log(etcd, lines); err != nil || got != want {
			t.Errorf("%d lines: %q, %v", lines, got, err)
		}
	}
	if _, err := c.Log("other", 0); err == nil || !strings.Contains(err.Error(), "there are logs of etcd") {
		t.Errorf("unknown component: %v", err)
	}
}

func TestCommandsNeedACluster(t *testing.T) {
	c, _ := fixture(t)
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "bring it up first") {
		t.Errorf("status: %v", err)
	}
	if err := c.LoadImage(t.Context(), "x.tar"); err == nil || !strings.Contains(err.Error(), "bring it up first") {
		t.Errorf("load-image: %v", err)
	}
	s := &state.State{Node: state.None, NodeReason: "no root", Short: c.layout.Short}
	if err := s.Save(c.layout.State()); err != nil {
		t.Fatal(err)
	}
	if err := c.LoadImage(t.Context(), "x.tar"); err == nil || !strings.Contains(err.Error(), "no root") {
		t.Errorf("load-image without a node: %v", err)
	}
}

func TestGuess(t *testing.T) {
	c, _ := fixture(t)
	if s := c.guess(); s.Node == state.Real || len(s.MadeDirs) > 0 {
		t.Errorf("nothing there: %+v", s)
	}
	if err := os.Symlink("/", c.layout.Short); err != nil {
		t.Fatal(err)
	}
	if s := c.guess(); s.Node == state.Real {
		t.Errorf("a link, so there was no node: %+v", s)
	}
	if err := os.Remove(c.layout.Short); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(c.layout.Short, 0o755); err != nil {
		t.Fatal(err)
	}
	if s := c.guess(); s.Node != state.Real || len(s.MadeDirs) == 0 {
		t.Errorf("a mount point: %+v", s)
	}
}

func TestFreeSubnet(t *testing.T) {
	among := func(addresses ...string) func(string) (bool, error) {
		return func(address string) (bool, error) { return slices.Contains(addresses, address), nil }
	}
	for _, tt := range []struct {
		name  string
		taken func(string) (bool, error)
		want  byte
		err   bool
	}{
		{"nothing taken", among(), 254, false},
		{"another cluster's", among("198.18.254.1"), 255, false},
		{"round the end", among("198.18.254.1", "198.18.255.1"), 0, false},
		{"all taken", func(string) (bool, error) { return true, nil }, 0, true},
		{"cannot tell", func(string) (bool, error) { return false, os.ErrPermission }, 254, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := freeSubnet(254, tt.taken); got != tt.want || (err != nil) != tt.err {
				t.Errorf("%d, %v", got, err)
			}
		})
	}
}

func TestHasAddress(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1": true, "192.0.2.254": false} {
		if taken, err := hasAddress(address); err != nil || taken != want {
			t.Errorf("%s: %v, %v", address, taken, err)
		}
	}
}

// The second cluster of a machine takes over what the first noted, so that the
// last to go puts the machine back, in whichever order they go.
func TestNeighbours(t *testing.T) {
	c, _ := fixture(t)
	run := filepath.Dir(c.layout.Short)
	for name, s := range map[string]*state.State{
		"memslice-11111111":           {Node: state.Real, Sysctls: map[string]string{"kernel/panic": "1"}, MadeDirs: []string{"/made/before"}},
		"memslice-22222222":           {Node: state.None, MadeDirs: []string{"/not/made"}},
		filepath.Base(c.layout.Short): {Node: state.Real, MadeDirs: []string{"/own"}},
	} {
		if err := s.Save(filepath.Join(run, name, "state.json")); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(run, "memslice-33333333", "state.json"), "{")
	s := &state.State{Node: state.Real}
	for range 2 {
		if err := c.remember(s); err != nil {
			t.Fatal(err)
		}
	}
	if s.Sysctls["kernel/panic"] != "1" || !slices.Contains(s.MadeDirs, "/made/before") {
		t.Errorf("not taken over: %v, %v", s.Sysctls, s.MadeDirs)
	}
	if slices.Contains(s.MadeDirs, "/own") || slices.Contains(s.MadeDirs, "/not/made") {
		t.Errorf("not a neighbour's: %v", s.MadeDirs)
	}
	if n := len(s.MadeDirs); n != len(slices.Compact(slices.Sorted(slices.Values(s.MadeDirs)))) {
		t.Errorf("noted twice: %v", s.MadeDirs)
	}

	used := filepath.Join(run, "used")
	if err := os.Mkdir(used, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.restore(&state.State{MadeDirs: []string{used}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(used); err != nil {
		t.Error("a folder that a neighbour uses was removed")
	}
	if err := os.RemoveAll(filepath.Join(run, "memslice-11111111")); err != nil {
		t.Fatal(err)
	}
	if err := c.restore(&state.State{MadeDirs: []string{used}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(used); err == nil {
		t.Error("the last one left a folder")
	}
}
