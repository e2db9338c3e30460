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

// memslice-hook is what a container runtime runs before it starts a container
// that has a share of a GPU: it has the memslice kubelet plugin limit the
// container to what was granted. Where that cannot be done the container is not
// started.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/memslice/memslice/pkg/hook"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		// The runtime shows it to those who wait for the container.
		fmt.Fprintln(os.Stderr, "memslice: cannot limit the GPU memory of this container:", strings.Join(strings.Fields(err.Error()), " ")+
			"; the container is not started without its limit, and the kubelet tries again")
		os.Exit(1)
	}
}

func run(args []string, stdin io.Reader, stderr io.Writer) error {
	flags := flag.NewFlagSet("memslice-hook", flag.ContinueOnError)
	flags.SetOutput(stderr)
	socket := flags.String("socket", "", "the socket of the memslice kubelet plugin (required)")
	var request hook.Request
	flags.StringVar(&request.Claim, "claim", "", "the UID of the ResourceClaim (required)")
	flags.IntVar(&request.Device, "device", 0, "which of the claim's devices the container was given")
	timeout := flags.Duration("timeout", 10*time.Second, "how long to wait for the plugin")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *socket == "" || request.Claim == "" || flags.NArg() > 0 {
		return errors.New("--socket and --claim are required, and nothing but flags")
	}
	var err error
	if request.PID, err = pid(stdin); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	return hook.Call(ctx, *socket, request)
}

// maxState is the largest state of a container that is read, in bytes.
const maxState = 64 << 10

// pid is that of the container's first process, in the state that the OCI runtime
// specification has runtimes hand to hooks.
func pid(state io.Reader) (int, error) {
	var s struct {
		PID int `json:"pid"`
	}
	if err := json.NewDecoder(io.LimitReader(state, maxState)).Decode(&s); err != nil {
		return 0, fmt.Errorf("read the container's state, which the container runtime hands to hooks: %w", err)
	}
	if s.PID <= 0 {
		return 0, fmt.Errorf("the container's state has the process id %d", s.PID)
	}
	return s.PID, nil
}
