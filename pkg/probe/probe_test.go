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

package probe

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestProbe(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "health.sock")
	// Left behind by a process that was killed.
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- NewServer(map[string]Check{
			Liveness:  func(context.Context) error { return nil },
			Readiness: func(context.Context) error { return errors.New("no driver:\n\tload it") },
		}).Serve(ctx, socket)
	}()

	for name, tc := range map[string]struct {
		service string
		want    string // in the error; empty for none
	}{
		"serving":         {Liveness, ""},
		"not serving":     {Readiness, "NOT_SERVING: no driver: load it"},
		"unknown service": {"elsewhere", `unknown service "elsewhere"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := untilAnswered(t.Context(), socket, tc.service)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}

	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if perm := info.Mode().Perm(); perm != 0o600 {
		t.Errorf("the socket has mode %o: others could connect", perm)
	}

	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve ended with %v", err)
	}
	if err := Ask(t.Context(), socket, Liveness); err == nil {
		t.Error("a server that has stopped still answers")
	}
}

// untilAnswered asks until the server listens.
func untilAnswered(ctx context.Context, socket, service string) error {
	for {
		err := Ask(ctx, socket, service)
		if status.Code(err) != codes.Unavailable {
			return err
		}
	}
}
