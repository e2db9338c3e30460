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
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/state"
)

// Report is what a Reconcile found and did.
type Report struct {
	Unprepared []kubeletplugin.NamespacedObject // prepared claims that no longer exist
	Restored   []types.UID                      // claims of which something was missing
	Orphans    []types.UID                      // CDI specs of claims that are not prepared
	SetAside   []state.SetAside
}

// Reconcile puts right what calls of the kubelet cannot: claims that ended
// without an Unprepare, or after it, and what was lost of those that have not.
// It goes on after an error, which is about single claims; those are tried
// again the next time.
func (p *Preparer) Reconcile(ctx context.Context) (Report, error) {
	var report Report
	var records []state.Record
	err := p.Store.Do(ctx, func(tx *state.Tx) error {
		records, report.SetAside = tx.All(), tx.SetAside()
		return nil
	})
	if err != nil {
		return report, fmt.Errorf("reconciling prepared claims: %w", err)
	}
	// Without the lock, as long as the API server has not said that one is gone.
	var errs []error
	for _, r := range records {
		gone, err := p.unprepareGone(ctx, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("claim %s/%s: %w", r.Namespace, r.Name, err))
		}
		if gone {
			report.Unprepared = append(report.Unprepared, kubeletplugin.NamespacedObject{
				NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, UID: r.UID,
			})
		}
	}
	errs = append(errs, p.Store.Do(ctx, func(tx *state.Tx) error {
		report.SetAside = append(report.SetAside, tx.SetAside()...)
		return errors.Join(p.restoreAll(ctx, tx, &report), p.removeOrphans(ctx, tx, &report), p.sweep(ctx, tx, report))
	}))
	if err := errors.Join(errs...); err != nil {
		return report, fmt.Errorf("reconciling prepared claims: %w", err)
	}
	return report, nil
}

// unprepareGone unprepares a claim that is no longer in use, whatever its phase.
// Where the API server does not answer, it is in use.
func (p *Preparer) unprepareGone(ctx context.Context, r state.Record) (gone bool, err error) {
	inUse, err := p.InUse(ctx, r.Namespace, r.Name, r.UID)
	if err != nil || inUse {
		return false, err
	}
	err = p.Store.Do(ctx, func(tx *state.Tx) error {
		// It may have been allocated and prepared again in the meantime.
		inUse, err := p.InUse(ctx, r.Namespace, r.Name, r.UID)
		if err != nil || inUse {
			return err
		}
		p.unprepared.add(r.UID)
		gone = true
		return p.remove(ctx, tx, r.UID)
	})
	if err != nil || !gone {
		return false, err
	}
	klog.FromContext(ctx).Info("Unprepared a claim that is deleted or no longer allocated", "claim", klog.KRef(r.Namespace, r.Name), "claimUID", r.UID, "phase", r.Phase)
	return true, nil
}

// restoreAll puts back what is missing of prepared claims. Those of an earlier
// boot are left to the kubelet, which prepares their claims again before it runs
// a pod.
func (p *Preparer) restoreAll(ctx context.Context, tx *state.Tx, report *Report) error {
	maps.DeleteFunc(p.specified, func(uid types.UID, _ []gpu.Assignment) bool {
		_, known := tx.Get(uid)
		return !known
	})
	var errs []error
	for _, r := range tx.All() {
		if r.Phase != state.Prepared || r.BootID != p.BootID {
			continue
		}
		restored, err := p.restore(ctx, tx, r)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("claim %s/%s: restoring what is missing of it: %w", r.Namespace, r.Name, err))
		case restored:
			klog.FromContext(ctx).Info("Something of a prepared claim was missing, its CDI spec or a MIG instance, and is made again", "claim", klog.KRef(r.Namespace, r.Name), "claimUID", r.UID)
			report.Restored = append(report.Restored, r.UID)
		}
	}
	return errors.Join(errs...)
}

// restore looks for a claim's CDI spec and its MIG instances. One that was made
// again is another one, so that the spec has to follow. What the spec says is not
// known after a restart; then it is written again in any case.
func (p *Preparer) restore(ctx context.Context, tx *state.Tx, r state.Record) (restored bool, err error) {
	exists, err := p.Specs.Exists(r.UID)
	partitioned := slices.ContainsFunc(r.Grants, func(g gpu.Grant) bool { return g.Form == gpu.MIG })
	if err != nil || exists && !partitioned {
		return false, err
	}
	assignments, err := p.realise(ctx, tx, r)
	if err != nil {
		return false, err
	}
	specified, known := p.specified[r.UID]
	if exists && slices.Equal(specified, assignments) {
		return false, nil
	}
	_, err = p.writeSpec(ctx, r.UID, assignments)
	return !exists || known, err
}

// removeOrphans removes CDI specs without a record. None is being made: the
// record comes first and goes last.
func (p *Preparer) removeOrphans(ctx context.Context, tx *state.Tx, report *Report) error {
	orphans, err := p.Specs.Orphans(func(uid types.UID) bool {
		_, known := tx.Get(uid)
		return known
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, uid := range orphans {
		if err := p.Specs.Remove(uid); err != nil {
			errs = append(errs, err)
			continue
		}
		klog.FromContext(ctx).Info("Removed the CDI spec of a claim that is not prepared", "claimUID", uid)
		report.Orphans = append(report.Orphans, uid)
	}
	return errors.Join(errs...)
}

// sweep removes MIG instances that were made and that no claim has. Right after a
// record was found to be damaged none is: its claim may be in use, and will have
// another record the next time.
func (p *Preparer) sweep(ctx context.Context, tx *state.Tx, report Report) error {
	if len(report.SetAside) > 0 {
		return nil
	}
	var held []gpu.Grant
	for _, r := range tx.All() {
		for _, g := range r.Grants {
			if !g.AdminAccess {
				held = append(held, g)
			}
		}
	}
	return p.Partitions.Sweep(ctx, held)
}

// Knows tells whether a claim is prepared, or was unprepared lately. What else
// is on the host of one that is neither has lost its record.
func (p *Preparer) Knows(ctx context.Context, uid types.UID) (known bool, err error) {
	err = p.Store.Do(ctx, func(tx *state.Tx) error {
		_, recorded := tx.Get(uid)
		known = recorded || p.unprepared.has(uid)
		return nil
	})
	return known, err
}
