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
	"fmt"
	"io"
	"sync"
	"time"
)

// Steps shows what is being done, and for how long, to somebody who waits.
type Steps struct {
	out   io.Writer
	now   func() time.Time
	every <-chan time.Time // when a step that is silent says that it still runs
}

// NewSteps shows steps on out; a silent one speaks up every ten seconds.
func NewSteps(out io.Writer) *Steps {
	return &Steps{out: out, now: time.Now, every: time.Tick(10 * time.Second)}
}

// Do runs work as a step. Work calls say with what it is doing now.
func (s *Steps) Do(title string, work func(say func(string)) error) error {
	began := s.now()
	fmt.Fprintf(s.out, "==> %s\n", title)
	said := make(chan string)
	done := make(chan struct{})
	var show sync.WaitGroup
	show.Go(func() { s.show(began, said, done) })
	err := work(func(line string) { said <- line })
	close(done)
	show.Wait()
	if err != nil {
		fmt.Fprintf(s.out, "    failed after %s\n", seconds(s.now().Sub(began)))
		return fmt.Errorf("%s: %w", title, err)
	}
	fmt.Fprintf(s.out, "    done in %s\n", seconds(s.now().Sub(began)))
	return nil
}

func (s *Steps) show(began time.Time, said <-chan string, done <-chan struct{}) {
	last, quiet := "at work", true
	for {
		select {
		case last = <-said:
			quiet = false
			fmt.Fprintf(s.out, "    %s\n", last)
		case <-s.every:
			if quiet {
				fmt.Fprintf(s.out, "    still: %s (%s)\n", last, seconds(s.now().Sub(began)))
			}
			quiet = true
		case <-done:
			return
		}
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
