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

package layout

import (
	"fmt"
	"slices"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/pkg/gpu"
)

// physical is the plainest account of one GPU.
type physical struct {
	geometry *catalog.Geometry // nil where it cannot be divided
	forms    map[gpu.Form]bool // that it is offered in
	memory   int64             // bytes that shares can have

	held map[string][]holding // by claim
}

// holding is what a claim has of one GPU.
type holding struct {
	form            gpu.Form
	memory, compute int64             // of a share, in bytes and percent
	place           catalog.Placement // of a partition
}

// check says what is wrong with all that claims hold of the GPU, and more.
func (p *physical) check(more ...holding) error {
	all := slices.Clone(more)
	for _, held := range p.held {
		all = append(all, held...)
	}
	var memory, compute int64
	var made []catalog.Placement
	for _, h := range all {
		switch {
		case !p.forms[h.form]:
			return fmt.Errorf("form %s is not offered", h.form)
		case h.form != all[0].form:
			return fmt.Errorf("forms %s and %s at once", h.form, all[0].form)
		case h.form == gpu.Whole && len(all) > 1:
			return fmt.Errorf("given whole %d times", len(all))
		case h.form == gpu.MIG && !p.geometry.Fits(made, h.place):
			return fmt.Errorf("partition %+v beside %+v", h.place, made)
		case h.form == gpu.MIG:
			made = append(made, h.place)
		}
		memory, compute = memory+h.memory, compute+h.compute
	}
	if memory > p.memory || compute > 100 {
		return fmt.Errorf("%d of %d bytes and %d%% of its compute are given away", memory, p.memory, compute)
	}
	return nil
}

// want is a request for a number of devices, or an alternative of one.
type want struct {
	form            gpu.Form
	memory, compute int64 // of a share; no memory is all of it
	profile         string
	count           int
}

// candidates are all that would do for one of what is wanted.
func (p *physical) candidates(w want) (all []holding) {
	switch w.form {
	case gpu.Whole:
		return []holding{{form: gpu.Whole}}
	case gpu.Slice:
		// At least 256Mi, by the mebibyte.
		memory := max((w.memory+mi-1)/mi*mi, 256*mi)
		if w.memory == 0 {
			memory = p.memory
		}
		return []holding{{form: gpu.Slice, memory: memory, compute: w.compute}}
	}
	if p.geometry == nil {
		return nil
	}
	for _, place := range placements(p.geometry) {
		if profile, _ := p.geometry.ByID(place.Profile); profile.Name == w.profile {
			all = append(all, holding{form: gpu.MIG, place: place})
		}
	}
	return all
}

// search tries everything until a claim has all that it wants.
type search struct {
	gpus     []*physical
	requests [][]want // with the alternatives of each
	taken    map[*physical][]holding
	first    int // the alternative that the first request gets
}

// solve tells whether a claim can have all that it wants, and which alternative
// of its first request that takes. Which ones the others get depends on the
// devices that the earlier ones got, which nobody promises.
func solve(gpus []*physical, requests [][]want) (first int, ok bool) {
	s := &search{gpus: gpus, requests: requests, taken: map[*physical][]holding{}}
	ok = s.request(0)
	return s.first, ok
}

func (s *search) request(n int) bool {
	if n == len(s.requests) {
		return true
	}
	for alternative, w := range s.requests[n] {
		if n == 0 {
			s.first = alternative
		}
		if s.devices(n, w, nil) {
			return true
		}
	}
	return false
}

// devices of one request are different ones: shares are of different GPUs.
func (s *search) devices(n int, w want, had []*physical) bool {
	if len(had) == w.count {
		return s.request(n + 1)
	}
	for _, p := range s.gpus {
		if w.form == gpu.Slice && slices.Contains(had, p) {
			continue
		}
		for _, h := range p.candidates(w) {
			before := s.taken[p]
			s.taken[p] = append(before[:len(before):len(before)], h)
			if p.check(s.taken[p]...) == nil && s.devices(n, w, append(had, p)) {
				return true
			}
			s.taken[p] = before
		}
	}
	return false
}
