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
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/state"
)

// Specs is the CDI specs of claims on this node.
type Specs interface {
	// Write writes a claim's spec anew, or changes nothing. It returns the name
	// of one CDI device per assignment.
	Write(ctx context.Context, uid types.UID, assignments []gpu.Assignment) ([]string, error)
	// Remove removes a claim's spec, if there is one.
	Remove(uid types.UID) error
	Exists(uid types.UID) (bool, error)
	// Orphans is the claims that have a spec and are not known.
	Orphans(known func(types.UID) bool) ([]types.UID, error)
}

// Partitions puts GPUs into the form that grants need, and takes it back.
type Partitions interface {
	// Realise sees to the MIG instance of a grant, which it adopts where it is
	// there already, and to the MIG mode where that goes with the claims. others
	// are the other grants held of that GPU. The instance is zero for what is
	// none.
	Realise(ctx context.Context, g gpu.Grant, d gpu.Device, others []gpu.Grant) (gpu.Instance, error)
	// Release removes what Realise made, if anything. It succeeds without the
	// driver, and leaves the rest to Sweep.
	Release(ctx context.Context, g gpu.Grant) error
	// Sweep removes what Realise made for any other grant than these.
	Sweep(ctx context.Context, held []gpu.Grant) error
}

// Config is what a Preparer works with. All but Attributes and Now is required.
type Config struct {
	Store      *state.Store
	Specs      Specs
	Partitions Partitions
	Devices    claim.Devices

	// Attributes is what is published of a device, for the metadata that
	// containers see. nil means nothing.
	Attributes func(gpu.Device) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

	// InUse asks the API server, not a cache, whether the claim of that name
	// still has that UID and an allocation.
	InUse func(ctx context.Context, namespace, name string, uid types.UID) (bool, error)

	// BootID tells this boot of the host from others: see BootID.
	BootID string

	// Patience is how long Prepare waits for a GPU that is held by claims which
	// have ended, until they are unprepared. It has to stay well below the 45
	// seconds that the kubelet waits.
	Patience time.Duration

	Now func() time.Time // nil means time.Now
}

// Preparer prepares claims on this node. It is safe for concurrent use, also by
// several processes with the same state directory.
type Preparer struct {
	Config

	// What follows is used in Store.Do only.
	unprepared recent
	// specified is what the CDI specs of claims with MIG instances say, as far as
	// it is known. They are never read.
	specified map[types.UID][]gpu.Assignment
}

// New makes a Preparer.
func New(c Config) *Preparer {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Preparer{Config: c, specified: make(map[types.UID][]gpu.Assignment)}
}

// Prepare sets up on the host what a claim was granted, and returns it in terms
// of the kubelet. After an error the host is as it was before the call.
//
// For a claim that is prepared already the answer is the same, and everything
// that a reboot or a stranger may have taken away is made anew.
func (p *Preparer) Prepare(ctx context.Context, plan claim.Plan) ([]kubeletplugin.Device, error) {
	if len(plan.Grants) == 0 {
		return nil, p.Unprepare(ctx, plan.UID)
	}
	var assignments []gpu.Assignment
	var ids []string
	err := p.whenFree(ctx, func() error {
		return p.Store.Do(ctx, func(tx *state.Tx) (err error) {
			assignments, ids, err = p.prepare(ctx, tx, plan)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).V(4).Info("Prepared claim", "claim", klog.KRef(plan.Namespace, plan.Name), "claimUID", plan.UID, "assignments", assignments)
	return p.devices(assignments, ids), nil
}

func (p *Preparer) prepare(ctx context.Context, tx *state.Tx, plan claim.Plan) (assignments []gpu.Assignment, ids []string, err error) {
	if err := p.refuseLate(ctx, plan); err != nil {
		return nil, nil, err
	}
	record, found := tx.Get(plan.UID)
	if found && record.BootID == p.BootID {
		plan.Grants = asBefore(plan.Grants, record.Grants)
	}
	if !found || !slices.Equal(record.Grants, plan.Grants) {
		if err := claim.Check(plan, held(tx, plan), p.Devices); err != nil {
			return nil, nil, err
		}
		if err := p.release(ctx, dropped(record.Grants, plan.Grants)); err != nil {
			return nil, nil, fmt.Errorf("claim %s: taking back what it was granted before: %w", plan, err)
		}
		found = false
		record = state.Record{UID: plan.UID, Namespace: plan.Namespace, Name: plan.Name,
			Phase: state.Preparing, BootID: p.BootID, CreatedAt: p.Now(), Grants: plan.Grants}
	}
	// What was whole before stays when it cannot be made anew: a pod may be
	// running with it, and the kubelet will either repeat the call or end it.
	keep := found && record.Phase == state.Prepared
	defer func() {
		if err != nil && !keep {
			// Also where it is the kubelet's patience that has ended.
			err = errors.Join(err, p.undo(context.WithoutCancel(ctx), tx, plan))
		}
	}()
	if !found {
		if err := tx.Put(record); err != nil {
			return nil, nil, err
		}
	}
	if assignments, err = p.realise(ctx, tx, record); err != nil {
		return nil, nil, fmt.Errorf("claim %s: %w", plan, err)
	}
	if ids, err = p.writeSpec(ctx, plan.UID, assignments); err != nil {
		return nil, nil, fmt.Errorf("claim %s: %w", plan, err)
	}
	if keep && record.BootID == p.BootID {
		return assignments, ids, nil
	}
	record.Phase, record.BootID = state.Prepared, p.BootID
	return assignments, ids, tx.Put(record)
}

// refuseLate keeps a call that was overtaken by the end of its claim from
// leaving something behind: what was unprepared may be prepared again, but not
// on the word of a claim that was read before.
func (p *Preparer) refuseLate(ctx context.Context, plan claim.Plan) error {
	if !p.unprepared.has(plan.UID) {
		return nil
	}
	inUse, err := p.InUse(ctx, plan.Namespace, plan.Name, plan.UID)
	if err != nil {
		return fmt.Errorf("claim %s was unprepared on this node; asking whether it is in use again: %w", plan, err)
	}
	if !inUse {
		return fmt.Errorf("claim %s was unprepared on this node and is deleted or no longer allocated: nothing is prepared for it", plan)
	}
	return nil
}

// held is what there is on the GPUs of a plan.
func held(tx *state.Tx, plan claim.Plan) []claim.Holding {
	var holdings []claim.Holding
	var uuids []string
	for _, g := range plan.Grants {
		if slices.Contains(uuids, g.UUID) {
			continue
		}
		uuids = append(uuids, g.UUID)
		for r := range tx.OnGPU(g.UUID) {
			for _, other := range r.Grants {
				if other.UUID == g.UUID {
					holdings = append(holdings, claim.Holding{UID: r.UID, Namespace: r.Namespace, Name: r.Name, Grant: other})
				}
			}
		}
	}
	return holdings
}

// undo takes back what a call may have done. What it cannot take back is left to
// the next call, since the record is the last to go.
func (p *Preparer) undo(ctx context.Context, tx *state.Tx, plan claim.Plan) error {
	if err := p.remove(ctx, tx, plan.UID); err != nil {
		return fmt.Errorf("and taking back what was done for claim %s, which will be tried again: %w", plan, err)
	}
	return nil
}

// Unprepare removes from the host all there is of a claim, which may be
// nothing. It needs neither the driver nor the API server.
func (p *Preparer) Unprepare(ctx context.Context, uid types.UID) error {
	logger := klog.FromContext(ctx)
	if err := claim.ValidateUID(uid); err != nil {
		// Nothing is ever prepared under it, so that all is done.
		logger.Error(err, "Asked to unprepare an impossible claim")
		return nil
	}
	err := p.Store.Do(ctx, func(tx *state.Tx) error {
		p.unprepared.add(uid)
		return p.remove(ctx, tx, uid)
	})
	if err != nil {
		return fmt.Errorf("unpreparing claim %s: %w", uid, err)
	}
	logger.V(4).Info("Unprepared claim", "claimUID", uid)
	return nil
}

func (p *Preparer) remove(ctx context.Context, tx *state.Tx, uid types.UID) error {
	if err := p.Specs.Remove(uid); err != nil {
		return err
	}
	record, _ := tx.Get(uid)
	err := p.release(ctx, record.Grants)
	switch {
	case err == nil:
		return tx.Delete(uid)
	case record.Phase == state.Prepared:
		// It is no longer, and nothing of it is to be restored.
		record.Phase = state.Preparing
		return errors.Join(err, tx.Put(record))
	}
	return err
}
