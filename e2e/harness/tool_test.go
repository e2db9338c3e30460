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

package harness

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\necho result $1 $ADDED\necho one >&2\necho two >&2\nexit $1\n"
	if err := os.WriteFile(filepath.Join(bin, "tool"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	tools := tools{bin: bin, env: []string{"ADDED=yes"}}
	var said []string
	out, err := tools.run(t.Context(), func(line string) { said = append(said, line) }, "tool", "0")
	if err != nil || string(out) != "result 0 yes\n" || !slices.Equal(said, []string{"one", "two"}) {
		t.Errorf("got %q, %v, progress %q", out, err, said)
	}
	for name, tc := range map[string]struct {
		tool  string
		words []string
	}{
		"a failure repeats what was said": {"tool", []string{"tool 3", "exit status 3", "    one\n    two"}},
		"a missing program has a remedy":  {"absent", []string{"absent is not there", "make build"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tools.run(t.Context(), nil, tc.tool, "3")
			for _, word := range tc.words {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("got %v, want an error with %q", err, word)
				}
			}
		})
	}
}

func TestLineWriter(t *testing.T) {
	var lines []string
	w := &lineWriter{each: func(line string) { lines = append(lines, line) }}
	for _, part := range []string{"a", "b\n\n  c\nd", "e\nrest"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("wrote %d of %d, %v", n, len(part), err)
		}
	}
	if want := []string{"ab", "c", "de"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

func TestLastLines(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\n":    "    a\n    b",
		"a\nb\nc\n": "    ...\n    b\n    c",
	} {
		if got := lastLines(text, 2); got != want {
			t.Errorf("last two lines of %q: got %q, want %q", text, got, want)
		}
	}
}

func TestAwait(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx   context.Context
		limit time.Duration
		check func(calls int) (string, error)
		want  string // in the error; empty for none
	}{
		"until it is so":            {t.Context(), time.Hour, func(n int) (string, error) { return map[bool]string{true: "not yet"}[n < 3], nil }, ""},
		"past errors":               {t.Context(), time.Hour, func(n int) (string, error) { return "", map[bool]error{true: errors.New("x")}[n < 3] }, ""},
		"how it is":                 {t.Context(), time.Millisecond, func(int) (string, error) { return "pod is Pending", nil }, "gave up waiting for it: pod is Pending"},
		"the last error":            {t.Context(), time.Millisecond, func(int) (string, error) { return "", errors.New("no server") }, "no server"},
		"what more waiting mends":   {t.Context(), time.Hour, func(int) (string, error) { return "", Hopeless(errors.New("it crashed")) }, "waiting for it: it crashed"},
		"until somebody interrupts": {cancelled, time.Hour, func(int) (string, error) { return "pod is Pending", nil }, "interrupted while waiting for it: pod is Pending"},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := await(tc.ctx, "it", tc.limit, time.Microsecond, func(context.Context) (string, error) {
				calls++
				return tc.check(calls)
			})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestSteps(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	every := make(chan time.Time)
	steps := &Steps{out: &out, now: func() time.Time { return now }, every: every}
	silent := func() {
		now = now.Add(10 * time.Second)
		every <- now
	}
	err := steps.Do("First", func(say func(string)) error {
		say("building")
		silent() // it has just spoken
		silent()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := steps.Do("Second", func(func(string)) error { return errors.New("no space") }); err == nil || err.Error() != "Second: no space" {
		t.Errorf("got %v, want the step's name and its error", err)
	}
	want := "==> First\n    building\n    still: building (20.0s)\n    done in 20.0s\n==> Second\n    failed after 0.0s\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestEnded(t *testing.T) {
	command := exec.Command("sleep", "600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if ended(command.Process.Pid) {
		t.Error("a process that runs counts as ended")
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Nobody has waited for it, so that it is still in the process table.
	for !ended(command.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
	_ = command.Wait()
	if !ended(command.Process.Pid) {
		t.Error("a process that is gone does not count as ended")
	}
}
