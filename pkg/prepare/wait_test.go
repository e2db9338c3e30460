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
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/pkg/claim"
)

func TestPrepareWaitsForEndedClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		ended      bool // the holder, as the API server has it
		unprepared bool // once somebody has asked
		prepared   bool // what comes of it
	}{
		"the holder is in use":                    {},
		"the holder has ended, and is unprepared": {ended: true, unprepared: true, prepared: true},
		"the holder has ended, and stays":         {ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			p := h.plugin()
			p.Patience = time.Minute
			if !tc.unprepared {
				p.Patience = 3 * retryInterval
			}
			if _, err := p.Prepare(h.context(), h.plan("old", grant("slice-0", 60*gib))); err != nil {
				t.Fatal(err)
			}
			h.setInUse("old", !tc.ended)

			var asked sync.Once
			var wg sync.WaitGroup
			inUse := p.InUse
			p.InUse = func(ctx context.Context, namespace, name string, uid types.UID) (bool, error) {
				asked.Do(func() {
					if tc.unprepared {
						wg.Go(func() {
							if err := p.Unprepare(h.context(), "old"); err != nil {
								t.Error(err)
							}
						})
					}
				})
				return inUse(ctx, namespace, name, uid)
			}

			_, err := p.Prepare(h.context(), h.plan("new", grant("slice-0", 60*gib)))
			wg.Wait()
			var held *claim.HeldError
			switch {
			case tc.prepared && err != nil:
				t.Errorf("not prepared: %v", err)
			case !tc.prepared && !errors.As(err, &held):
				t.Errorf("got %v, want it to be held by another claim", err)
			case !tc.prepared:
				if len(held.By) != 1 || held.By[0].UID != "old" {
					t.Errorf("held by %+v, want claim old", held.By)
				}
			}
			if tc.prepared {
				h.want("afterwards", "new")
			} else {
				h.want("afterwards", "old")
			}
		})
	}
}

func TestPrepareStopsWaitingWhenCancelled(t *testing.T) {
	h := newHost(t)
	p := h.plugin()
	p.Patience = time.Hour
	if _, err := p.Prepare(h.context(), h.plan("old", grant("slice-0", 60*gib))); err != nil {
		t.Fatal(err)
	}
	h.setInUse("old", false)
	ctx, cancel := context.WithCancel(h.context())
	cancel()
	if _, err := p.Prepare(ctx, h.plan("new", grant("slice-0", 60*gib))); err == nil {
		t.Error("prepared although its memory is held")
	}
}
