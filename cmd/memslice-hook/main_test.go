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

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memslice/memslice/pkg/hook"
)

// build makes the program as it ships.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "memslice-hook")
	command := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, ".")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// It runs wherever a container runtime does, each time that a container starts.
func TestSmallAndStatic(t *testing.T) {
	info, err := os.Stat(build(t))
	if err != nil {
		t.Fatal(err)
	}
	if most := int64(4 << 20); info.Size() >= most {
		t.Errorf("it has %d bytes, want less than %d", info.Size(), most)
	}
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		if !strings.HasPrefix(path, "github.com/memslice/memslice/") {
			t.Errorf("it depends on %s", path)
		}
	}
}

func TestHook(t *testing.T) {
	program := build(t)
	dir, err := os.MkdirTemp("", "hook")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "hook.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	asked := make(chan hook.Request, 1)
	go func() {
		ended <- hook.Server{Path: socket, Failed: func(error) {}, Handle: func(ctx context.Context, r hook.Request) error {
			switch asked <- r; r.Claim {
			case "refused":
				return context.DeadlineExceeded
			case "slow":
				<-ctx.Done()
			}
			return nil
		}}.Serve(ctx)
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}()
	for {
		if _, err := os.Stat(socket); err == nil {
			break
		}
	}
	const state = `{"ociVersion":"1.2.0","id":"c","status":"created","pid":4711,"bundle":"/b"}`
	at := func(claim string, more ...string) []string {
		return append([]string{"--socket", socket, "--claim", claim, "--device", "1"}, more...)
	}
	for name, tc := range map[string]struct {
		args  []string
		stdin string
		want  string // of the message; empty for success
		asks  bool
	}{
		"consent":                  {args: at("a"), stdin: state, asks: true},
		"refusal":                  {args: at("refused"), stdin: state, want: "context deadline exceeded; the container is not started without its limit", asks: true},
		"no answer in time":        {args: at("slow", "--timeout", "100ms"), stdin: state, want: "does not answer on " + socket, asks: true},
		"plugin away":              {args: []string{"--socket", socket + "-gone", "--claim", "a"}, stdin: state, want: "does not answer on " + socket + "-gone"},
		"no state":                 {args: at("a"), want: "the container's state"},
		"garbage for a state":      {args: at("a"), stdin: "pid: 1", want: "the container's state"},
		"a state without an end":   {args: at("a"), stdin: `{"annotations":"` + strings.Repeat("x", 2*maxState), want: "the container's state"},
		"no process":               {args: at("a"), stdin: `{"pid":0}`, want: "process id 0"},
		"a negative process":       {args: at("a"), stdin: `{"pid":-1}`, want: "process id -1"},
		"no claim":                 {args: []string{"--socket", socket}, stdin: state, want: "--claim are required"},
		"no socket":                {args: []string{"--claim", "a"}, stdin: state, want: "--socket and"},
		"an argument":              {args: at("a", "b"), stdin: state, want: "nothing but flags"},
		"a flag that there is not": {args: at("a", "--force"), stdin: state, want: "-force"},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(program, tc.args...)
			command.Stdin = strings.NewReader(tc.stdin)
			var stderr bytes.Buffer
			command.Stderr = &stderr
			err := command.Run()
			said := stderr.String()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(said, tc.want)) {
				t.Errorf("got %v, %s, want %q", err, said, tc.want)
			}
			if last := said[strings.LastIndex(strings.TrimSuffix(said, "\n"), "\n")+1:]; err != nil && !strings.HasPrefix(last, "memslice: ") {
				t.Errorf("the last line is %q", last)
			}
			if tc.asks {
				if got := <-asked; got.PID != 4711 || got.Device != 1 {
					t.Errorf("it asked %+v", got)
				}
			}
		})
	}
}

func FuzzPID(f *testing.F) {
	f.Add([]byte(`{"pid":1}`))
	f.Add([]byte(`{"pid":1e400}`))
	f.Fuzz(func(t *testing.T, state []byte) {
		if got, err := pid(io.NopCloser(bytes.NewReader(state))); err == nil && got <= 0 {
			t.Errorf("the process id is %d", got)
		}
	})
}
