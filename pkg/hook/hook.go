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

// Package hook is what the OCI hook and the kubelet plugin say to each other: one
// request and one answer, each a line of JSON, over a unix socket of root's.
//
// It depends on the standard library only, as the hook is a small program that
// runs wherever a container runtime does.
package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// Request asks for the limits of a container.
type Request struct {
	Claim  string `json:"claim"`  // UID
	Device int    `json:"device"` // index among the claim's grants
	PID    int    `json:"pid"`    // of the container's first process, on the host
}

// answer is empty for consent.
type answer struct {
	Error string `json:"error,omitempty"`
}

// maxMessage is the largest request or answer, in bytes.
const maxMessage = 4 << 10

// ErrRefused is the plugin's refusal, whose text is the error's.
var ErrRefused = errors.New("refused")

// Call asks the plugin, and waits for its answer as long as ctx allows.
func Call(ctx context.Context, socket string, r Request) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("the memslice kubelet plugin does not answer on %s: %w", socket, err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("limit the time for an answer: %w", err)
		}
	}
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return fmt.Errorf("ask the memslice kubelet plugin on %s: %w", socket, err)
	}
	var a answer
	if err := read(conn, &a); err != nil {
		return fmt.Errorf("the memslice kubelet plugin does not answer on %s: %w", socket, err)
	}
	if a.Error != "" {
		return fmt.Errorf("%w: %s", ErrRefused, a.Error)
	}
	return nil
}

// read takes one message, and no more than that is long.
func read(r io.Reader, into any) error {
	decoder := json.NewDecoder(io.LimitReader(r, maxMessage))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
