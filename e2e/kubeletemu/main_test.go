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
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPIDFileAdmitsOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	first, err := lockPIDFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockPIDFile(path); err == nil || !strings.Contains(err.Error(), "another kubeletemu serves this node") {
		t.Errorf("a second lock: got %v, want a refusal", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lockPIDFile(path)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	_ = again.Close()
}

func TestProgramIsStartedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		script string // appends a line to $OUT at each start
		signal bool
	}{
		"after it ended":    {"echo x >> $OUT", false},
		"when asked to":     {"echo x >> $OUT; exec sleep 600", true},
		"although it waits": {"trap 'exit 3' TERM; echo x >> $OUT; while :; do sleep 0.1; done", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			ctx, cancel := context.WithCancel(t.Context())
			restart, done := make(chan os.Signal, 1), make(chan struct{})
			go func() {
				defer close(done)
				keepRunning(ctx, []string{"sh", "-c", "OUT=" + out + "; " + tc.script}, restart)
			}()
			awaitLines(t, out, 1)
			if tc.signal {
				restart <- os.Interrupt
			}
			awaitLines(t, out, 2)
			cancel()
			<-done
		})
	}
}

func awaitLines(t *testing.T, path string, lines int) {
	t.Helper()
	for range 6000 {
		text, err := os.ReadFile(path)
		if err == nil && strings.Count(string(text), "\n") >= lines {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("the program was not started %d times", lines)
}
