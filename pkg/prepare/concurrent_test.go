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
	"math/rand/v2"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/pkg/state"
)

// TestConcurrent has two instances of the plugin used by many at once. A GPU has
// room for four of the shares.
func TestConcurrent(t *testing.T) {
	h := newHost(t)
	plugins := []*Preparer{h.plugin(), h.plugin()}
	ctx := h.context()
	var wg sync.WaitGroup
	for worker := range 6 {
		uid := types.UID(fmt.Sprint("c", worker))
		plan := h.plan(uid, grant("slice-0", 20*gib))
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 0))
			for range 25 {
				// Where it does not fit, others are in the way, which is fine.
				_, _ = plugins[random.IntN(2)].Prepare(ctx, plan)
				if _, err := plugins[random.IntN(2)].Reconcile(ctx); err != nil {
					t.Error(err)
				}
				if err := plugins[random.IntN(2)].Unprepare(ctx, uid); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	h.want("at the end")
	for i := range 5 {
		_, err := plugins[i%2].Prepare(ctx, h.plan(types.UID(fmt.Sprint("last", i)), grant("slice-0", 20*gib)))
		if (err == nil) != (i < 4) {
			t.Errorf("share %d: %v", i+1, err)
		}
	}
}

// BenchmarkPrepare is one more claim prepared and unprepared beside those that
// are. Its cost must not depend on their number.
func BenchmarkPrepare(b *testing.B) {
	for _, present := range []int{0, 1000} {
		b.Run(fmt.Sprintf("prepared=%d", present), func(b *testing.B) {
			h := newHost(b)
			p := h.plugin()
			store, err := state.Open(b.Context(), h.claims, state.Options{}) // with all that a disk takes
			if err != nil {
				b.Fatal(err)
			}
			p.Store = store
			for i := range present {
				if _, err := p.Prepare(b.Context(), h.plan(types.UID(fmt.Sprint("c", i)), grant(fmt.Sprint("slice-", i%8), 1<<20))); err != nil {
					b.Fatal(err)
				}
			}
			plan := h.plan("one-more", grant("slice-0", 4*gib))
			for b.Loop() {
				if _, err := p.Prepare(b.Context(), plan); err != nil {
					b.Fatal(err)
				}
				if err := p.Unprepare(b.Context(), plan.UID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
