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

package state

import "fmt"

// maxEvents bounds the document: a waiter that falls this far behind misses
// events, as with the real driver's queue.
const maxEvents = 256

// Remove takes a GPU away, as draining it or a failure at boot does. Indexes
// and minor numbers of the GPUs behind it move.
func (s *State) Remove(name string) error {
	gpu, err := s.Find(name)
	if err != nil {
		return err
	}
	if gpu.Removed {
		return fmt.Errorf("GPU %s is removed already", gpu.UUID)
	}
	gpu.Removed = true
	gpu.unload()
	s.probe()
	return nil
}

// Add brings a removed GPU back.
func (s *State) Add(name string) error {
	gpu, err := s.Find(name)
	if err != nil {
		return err
	}
	if !gpu.Removed {
		return fmt.Errorf("GPU %s is not removed: 'fakegpu remove-gpu' does that", gpu.UUID)
	}
	gpu.Removed = false
	s.probe()
	return nil
}

// LoadDriver loads the driver, which numbers the GPUs anew.
func (s *State) LoadDriver() {
	s.Driver.Loaded = true
	s.probe()
}

// UnloadDriver unloads the driver, as a reboot does too: processes and MIG
// instances are gone, and MIG modes where the GPU does not keep them.
func (s *State) UnloadDriver() {
	s.Driver.Loaded = false
	for i := range s.GPUs {
		s.GPUs[i].unload()
	}
}

// Raise appends an XID event of a GPU.
func (s *State) Raise(name string, xid uint64) error {
	gpu, err := s.Find(name)
	if err != nil {
		return err
	}
	s.Events = append(s.Events, Event{Sequence: s.LastEvent() + 1, UUID: gpu.UUID, XID: xid})
	if excess := len(s.Events) - maxEvents; excess > 0 {
		s.Events = s.Events[excess:]
	}
	return nil
}

// LastEvent is the sequence number of the latest event, 0 before the first.
func (s *State) LastEvent() uint64 {
	if len(s.Events) == 0 {
		return 0
	}
	return s.Events[len(s.Events)-1].Sequence
}

// NextEvent is the first event after a sequence number that one of the GPUs
// raised.
func (s *State) NextEvent(after uint64, uuids map[string]bool) (Event, bool) {
	for _, event := range s.Events {
		if event.Sequence > after && uuids[event.UUID] {
			return event, true
		}
	}
	return Event{}, false
}

// Fail makes a query of the GPU fail until it is cleared.
func (g *GPU) Fail(query Query, result Result) {
	if g.Failures == nil {
		g.Failures = map[Query]Result{}
	}
	g.Failures[query] = result
	delete(g.FailuresLeft, query)
}

// FailTimes makes a query of the GPU fail that often.
func (g *GPU) FailTimes(query Query, result Result, times int) {
	g.Fail(query, result)
	if g.FailuresLeft == nil {
		g.FailuresLeft = map[Query]int{}
	}
	g.FailuresLeft[query] = times
}

// Clear makes a query of the GPU succeed again.
func (g *GPU) Clear(query Query) {
	delete(g.Failures, query)
	delete(g.FailuresLeft, query)
}

// ClearFailures makes every query of the GPU succeed again.
func (g *GPU) ClearFailures() { g.Failures, g.FailuresLeft = nil, nil }

// Failed counts a failure of a query, where failures of it are counted.
func (g *GPU) Failed(query Query) {
	left, counted := g.FailuresLeft[query]
	switch {
	case !counted:
	case left > 1:
		g.FailuresLeft[query] = left - 1
	default:
		g.Clear(query)
	}
}
