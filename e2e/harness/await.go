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
	"fmt"
	"time"
)

const (
	// awaitLimit is far beyond what anything takes on a slow machine.
	awaitLimit = 3 * time.Minute
	awaitPoll  = 200 * time.Millisecond
)

// Await returns when check says "": what it says otherwise is how things are
// instead, and becomes part of the error when it takes too long. Errors of check
// are taken for passing ones, unless they are Hopeless.
func Await(ctx context.Context, what string, check func(context.Context) (now string, err error)) error {
	return await(ctx, what, awaitLimit, awaitPoll, check)
}

func await(ctx context.Context, what string, limit, poll time.Duration, check func(context.Context) (string, error)) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last := "nothing is known"
	for {
		now, err := check(limited)
		var end hopeless
		switch {
		case err == nil && now == "":
			return nil
		case errors.As(err, &end):
			return fmt.Errorf("waiting for %s: %w", what, end.error)
		case err == nil:
			last = now
		case limited.Err() == nil: // an error of its own, not of the end
			last = err.Error()
		}
		select {
		case <-limited.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("interrupted while waiting for %s: %s", what, last)
			}
			return fmt.Errorf("gave up waiting for %s: %s", what, last)
		case <-time.After(poll):
		}
	}
}

// Hopeless is an error that more waiting would not mend.
func Hopeless(err error) error { return hopeless{err} }

type hopeless struct{ error }
