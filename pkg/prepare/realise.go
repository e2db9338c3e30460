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
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/state"
)

// realise makes what a claim was granted, or finds it. The claim's record is on
// the disk already.
func (p *Preparer) realise(ctx context.Context, tx *state.Tx, record state.Record) ([]gpu.Assignment, error) {
	var assignments []gpu.Assignment
	for i, g := range record.Grants {
		device, ok := p.Devices.Device(g.Pool, g.Device)
		if !ok {
			return nil, fmt.Errorf("request %q: %w", g.Request, claim.NoSuchDevice(g.Pool, g.Device))
		}
		instance, err := p.Partitions.Realise(ctx, g, device, others(tx, record, i))
		if err != nil {
			return nil, fmt.Errorf("request %q: %w", g.Request, err)
		}
		assignments = append(assignments, gpu.Assignment{Grant: g, Instance: instance})
	}
	return assignments, nil
}

// release takes back what was made for grants, the last one first. It goes on
// after an error.
func (p *Preparer) release(ctx context.Context, grants []gpu.Grant) error {
	var errs []error
	for _, g := range slices.Backward(grants) {
		if err := p.Partitions.Release(ctx, g); err != nil {
			errs = append(errs, fmt.Errorf("request %q: %w", g.Request, err))
		}
	}
	return errors.Join(errs...)
}

// others is what is held on the GPU of a record's i-th grant, by that claim or
// another, beside that grant.
func others(tx *state.Tx, record state.Record, i int) []gpu.Grant {
	var grants []gpu.Grant
	uuid := record.Grants[i].UUID
	for r := range tx.OnGPU(uuid) {
		for j, g := range r.Grants {
			if g.UUID == uuid && !g.AdminAccess && (r.UID != record.UID || j != i) {
				grants = append(grants, g)
			}
		}
	}
	return grants
}

// dropped is those of a claim's former grants whose place on the GPU is not
// among its new ones.
func dropped(former, current []gpu.Grant) []gpu.Grant {
	return slices.DeleteFunc(slices.Clone(former), func(f gpu.Grant) bool {
		return slices.ContainsFunc(current, func(c gpu.Grant) bool {
			return c.UUID == f.UUID && c.Form == f.Form && c.Partition == f.Partition && c.Existing == f.Existing && c.AdminAccess == f.AdminAccess
		})
	})
}

// asBefore has what holds a claim to its grants stay what it was, as long as it
// is prepared: its containers run with that, whatever the GPU offers by now.
func asBefore(current, former []gpu.Grant) []gpu.Grant {
	current = slices.Clone(current)
	for i := range min(len(current), len(former)) {
		same := current[i]
		same.Isolation = former[i].Isolation
		if same == former[i] && same.Isolation != "" {
			current[i] = same
		}
	}
	return current
}

// writeSpec writes a claim's CDI spec, and remembers what may change on the GPU
// without a word from the kubelet.
func (p *Preparer) writeSpec(ctx context.Context, uid types.UID, assignments []gpu.Assignment) ([]string, error) {
	ids, err := p.Specs.Write(ctx, uid, assignments)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(assignments, func(a gpu.Assignment) bool { return a.Form == gpu.MIG }) {
		p.specified[uid] = assignments
	}
	return ids, nil
}
