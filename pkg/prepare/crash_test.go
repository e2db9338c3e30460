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

package prepare

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/state/statetest"
)

// TestEveryStepCanFail makes each step of Prepare and Unprepare fail, those on
// the GPU included, and the process and the machine die there, and goes on in
// each of the ways that can follow. Whatever was left, it ends right: nothing
// leaks, nothing is lost, and what others hold is accounted for. At no time is an
// instance on a GPU that no record on the disk has.
func TestEveryStepCanFail(t *testing.T) {
	for name, operation := range map[string]struct {
		before func(*host, *Preparer) error // what is there already
		do     func(*host, *Preparer) error
	}{
		"prepare":               {nil, prepareA},
		"prepare again":         {prepareA, prepareA},
		"prepare after reboot":  {func(h *host, p *Preparer) error { err := prepareA(h, p); h.reboot(); return err }, prepareA},
		"prepare another plan":  {prepareOther, prepareA},
		"unprepare":             {prepareA, unprepareA},
		"unprepare and prepare": {prepareA, func(h *host, p *Preparer) error { return firstError(unprepareA(h, p), prepareA(h, p)) }},
	} {
		for _, mode := range statetest.Modes {
			for _, ending := range endings {
				t.Run(fmt.Sprintf("%s/%s/%s", name, mode, ending.name), func(t *testing.T) {
					t.Parallel()
					steps := 0
					for reached := true; reached; steps++ {
						reached = failAt(t, steps+1, mode, operation.before, operation.do, ending.do)
					}
					if steps < 2 {
						t.Error("no step was made to fail")
					}
				})
			}
		}
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func prepareA(h *host, p *Preparer) error {
	_, err := p.Prepare(h.context(), h.plan("a", grant("slice-0", 50*gib), grant("gpu-1", 80*gib), grant("mig-3-1-0", 10*gib), grant("mig-3-2-2", 20*gib)))
	return err
}

func prepareOther(h *host, p *Preparer) error {
	_, err := p.Prepare(h.context(), h.plan("a", grant("gpu-2", 80*gib), grant("mig-3-2-0", 20*gib), grant("mig-3-2-2", 20*gib)))
	return err
}

// neighbour is another claim on the same GPUs.
func neighbour(h *host) claim.Plan {
	return h.plan("neighbour", grant("slice-0", 20*gib), grant("mig-3-4-4", 40*gib))
}

func unprepareA(h *host, p *Preparer) error { return p.Unprepare(h.context(), "a") }

// endings are what the kubelet and the API server may do next.
var endings = []struct {
	name string
	do   func(*testing.T, string, *host, *Preparer)
}{
	{"tried again", func(t *testing.T, where string, h *host, p *Preparer) {
		if err := prepareA(h, p); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		h.want(where, "a", "neighbour")
		// 50Gi and 20Gi of 80Gi are held, no more and no less.
		if _, err := p.Prepare(h.context(), h.plan("b", grant("slice-0", 10*gib+1))); err == nil {
			t.Errorf("%s: the GPU is over-committed", where)
		}
		if _, err := p.Prepare(h.context(), h.plan("b", grant("slice-0", 10*gib), grant("gpu-2", 80*gib))); err != nil {
			t.Errorf("%s: what is free is not: %v", where, err)
		}
	}},
	{"ended", func(t *testing.T, where string, h *host, p *Preparer) {
		if err := unprepareA(h, p); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		wantNothingOfA(t, where, h, p)
	}},
	{"deleted", func(t *testing.T, where string, h *host, p *Preparer) {
		h.setInUse("a", false)
		if _, err := p.Reconcile(h.context()); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		wantNothingOfA(t, where, h, p)
	}},
}

func wantNothingOfA(t *testing.T, where string, h *host, p *Preparer) {
	t.Helper()
	h.want(where, "neighbour")
	if _, err := p.Prepare(h.context(), h.plan("b", grant("slice-0", 60*gib), grant("gpu-1", 80*gib), grant("gpu-2", 80*gib), grant("mig-3-4-0", 40*gib))); err != nil {
		t.Errorf("%s: what is free is not: %v", where, err)
	}
}

// failAt has one step fail. It returns false where there are not that many.
func failAt(t *testing.T, step int, mode statetest.Mode, before, do func(*host, *Preparer) error, ending func(*testing.T, string, *host, *Preparer)) bool {
	t.Helper()
	reached := false
	for _, power := range []bool{true, false} {
		where := fmt.Sprintf("step %d, power %v", step, power)
		h := newHost(t)
		p := h.plugin()
		_, err := p.Prepare(h.context(), neighbour(h))
		if err == nil && before != nil {
			err = before(h, p)
		}
		if err != nil {
			t.Fatal(err)
		}
		recordsBefore, _ := h.left()

		h.faults = &statetest.Faults{}
		p, disk := h.pluginWithDisk()
		h.faults.At, h.faults.Mode = h.faults.Steps()+step, mode
		failure := do(h, p)
		h.wantRecorded(where)
		reached = h.faults.Steps() >= h.faults.At
		if reached && failure == nil {
			t.Errorf("%s: no error", where)
		}

		lives := mode == statetest.Fail || mode == statetest.FailAfter
		if !power {
			disk.PowerLoss()
			h.reboot()
			lives = false
		}
		h.faults.At = 0
		if !lives {
			p = h.plugin()
		}
		// As after a reboot, the kubelet prepares again what it runs.
		if _, err := p.Prepare(h.context(), neighbour(h)); err != nil {
			t.Fatal(err)
		}
		records, files := h.left()
		for _, uid := range files {
			if !slices.Contains(records, uid) {
				t.Errorf("%s: a CDI spec of %s without a record", where, uid)
			}
		}
		h.wantRecorded(where)
		if lives && reached && before == nil {
			if !cmp.Equal(records, recordsBefore) {
				t.Errorf("%s: error %v, but records of %q are left", where, failure, records)
			}
			h.want(where, recordsBefore...)
		}
		h.setInUse("a", true)
		ending(t, where, h, p)
	}
	return reached
}
