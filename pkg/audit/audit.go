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

package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/container"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/isolation"
	"github.com/memslice/memslice/pkg/state"
)

// Hardware is the GPUs.
type Hardware interface {
	// Processes lists who uses a GPU.
	Processes(ctx context.Context, uuid string) ([]gpu.Process, error)
}

// Machine is where the processes run.
type Machine interface {
	// Find is the container of a process. Its errors are those of
	// [container.Finder.Find].
	Find(pid int) (container.Container, error)
	// Command is the name of a process' program.
	Command(pid int) (string, error)
}

// Limits are what holds containers to their shares.
type Limits interface {
	// Check compares the limits on a GPU with what they should be, and puts them
	// right.
	Check(ctx context.Context, uuid string) ([]isolation.Limit, error)
	// Holding is the shares that containers were given, by their IDs.
	Holding(context.Context) (map[string][]isolation.Share, error)
}

// Options of an Auditor. All but Now are required.
type Options struct {
	Hardware Hardware
	Machine  Machine
	Limits   Limits

	// Records are the prepared claims.
	Records func(context.Context) ([]state.Record, error)

	// Pods asks the API server which pods a claim is reserved for.
	Pods func(context.Context, state.Record) ([]Pod, error)

	// Audited is told of each snapshot.
	Audited func(context.Context, Snapshot)

	Now func() time.Time // nil means time.Now
}

// Auditor looks at what processes use. All but Wake is for one goroutine.
type Auditor struct {
	Options
	peaks    map[isolation.Share]uint64
	pods     map[types.UID][]Pod
	asked    map[string]time.Time // when all claims were asked for, by pod
	failures map[string]string    // what could not be found out, by GPU
	wake     chan struct{}
}

// New makes an Auditor.
func New(o Options) *Auditor {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Auditor{
		Options: o, peaks: map[isolation.Share]uint64{}, pods: map[types.UID][]Pod{},
		asked: map[string]time.Time{}, failures: map[string]string{}, wake: make(chan struct{}, 1),
	}
}

// Run audits at every interval, and when it is woken, until ctx is done.
func (a *Auditor) Run(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		snapshot, err := a.Audit(ctx)
		if err == nil {
			a.Audited(ctx, snapshot)
		} else if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Auditing the use of GPU memory; trying again", "interval", interval)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-a.wake:
		}
	}
}

// Wake has Run audit at once. It may be called by any goroutine.
func (a *Auditor) Wake() {
	select {
	case a.wake <- struct{}{}:
	default: // it is about to
	}
}

// Audit looks once. A GPU that cannot be asked is left out, and logged when it
// begins.
func (a *Auditor) Audit(ctx context.Context) (Snapshot, error) {
	s := Snapshot{Time: a.Now()}
	records, err := a.Records(ctx)
	if err != nil {
		return s, fmt.Errorf("which claims are prepared: %w", err)
	}
	given, err := a.Limits.Holding(ctx)
	if err != nil {
		return s, err
	}
	a.forget(records)
	for _, r := range records {
		if r.Phase == state.Prepared {
			s.Claims = append(s.Claims, a.claim(ctx, r))
		}
	}
	for _, uuid := range gpus(s.Claims) {
		processes, err := a.processes(ctx, uuid)
		if err == nil {
			a.askFor(ctx, records, s.Claims, processes)
			var limits []isolation.Limit
			limits, err = a.Limits.Check(ctx, uuid)
			foreign := account(uuid, s.Claims, given, processes)
			s.GPUs = append(s.GPUs, GPU{UUID: uuid, Foreign: foreign})
			note(uuid, s.Claims, limits)
		}
		a.failed(ctx, uuid, err)
	}
	a.peak(s.Claims)
	return s, nil
}

// gpus are those that claims have something of.
func gpus(claims []Claim) []string {
	var uuids []string
	for _, c := range claims {
		for _, d := range c.Devices {
			uuids = append(uuids, d.Grant.UUID)
		}
	}
	slices.Sort(uuids)
	return slices.Compact(uuids)
}

func (a *Auditor) claim(ctx context.Context, r state.Record) Claim {
	c := Claim{UID: r.UID, Namespace: r.Namespace, Name: r.Name, Since: r.CreatedAt}
	for _, g := range r.Grants {
		c.Devices = append(c.Devices, Device{Grant: g})
	}
	pods, known := a.pods[r.UID]
	if !known {
		pods = a.ask(ctx, r)
	}
	c.Pods = pods
	return c
}

// ask finds out which pods a claim is reserved for. Where the API server does not
// answer, it is asked again the next time.
func (a *Auditor) ask(ctx context.Context, r state.Record) []Pod {
	pods, err := a.Pods(ctx, r)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("It is not known which pods a claim is for", "claim", klog.KRef(r.Namespace, r.Name), "err", err)
		return a.pods[r.UID]
	}
	a.pods[r.UID] = pods
	return pods
}

// askInterval is how often the API server is asked about all claims for the sake
// of a pod that none is known to be reserved for.
const askInterval = time.Minute

// askFor looks whether a claim has another pod since it was asked for.
func (a *Auditor) askFor(ctx context.Context, records []state.Record, claims []Claim, processes []process) {
	for _, p := range processes {
		known := slices.ContainsFunc(claims, func(c Claim) bool { return c.reservedFor(p.pod) })
		if p.pod == "" || known || a.Now().Sub(a.asked[p.pod]) < askInterval {
			continue
		}
		a.asked[p.pod] = a.Now()
		for i := range claims {
			at := slices.IndexFunc(records, func(r state.Record) bool { return r.UID == claims[i].UID })
			claims[i].Pods = a.ask(ctx, records[at])
		}
	}
}

func (a *Auditor) processes(ctx context.Context, uuid string) ([]process, error) {
	found, err := a.Hardware.Processes(ctx, uuid)
	if err != nil {
		return nil, err
	}
	var processes []process
	for _, f := range found {
		p := process{Process: f}
		c, err := a.Machine.Find(f.PID)
		if err == nil {
			p.pod, p.container = c.Pod, c.ID
		} else if !errors.Is(err, container.ErrNotContainer) {
			// It has ended, and what it had with it.
			continue
		}
		if p.command, err = a.Machine.Command(f.PID); err != nil {
			continue
		}
		processes = append(processes, p)
	}
	return processes, nil
}

// note puts the limits of containers to the devices that they have.
func note(uuid string, claims []Claim, limits []isolation.Limit) {
	for i := range claims {
		for n := range claims[i].Devices {
			d := &claims[i].Devices[n]
			if d.Grant.UUID != uuid {
				continue
			}
			d.Known = true
			for _, l := range limits {
				if slices.Contains(l.Shares, isolation.Share{Claim: claims[i].UID, Device: n}) {
					d.Limits = append(d.Limits, l)
				}
			}
		}
	}
}

func (a *Auditor) peak(claims []Claim) {
	for i := range claims {
		for n := range claims[i].Devices {
			d, share := &claims[i].Devices[n], isolation.Share{Claim: claims[i].UID, Device: n}
			a.peaks[share] = max(a.peaks[share], d.Used)
			d.Peak = a.peaks[share]
		}
	}
}

// forget drops what is known of claims that are no longer prepared.
func (a *Auditor) forget(records []state.Record) {
	prepared := map[types.UID]bool{}
	for _, r := range records {
		prepared[r.UID] = true
	}
	for share := range a.peaks {
		if !prepared[share.Claim] {
			delete(a.peaks, share)
		}
	}
	for uid := range a.pods {
		if !prepared[uid] {
			delete(a.pods, uid)
		}
	}
	for pod, asked := range a.asked {
		if a.Now().Sub(asked) >= askInterval {
			delete(a.asked, pod)
		}
	}
}

// failed logs what could not be found out of a GPU, once.
func (a *Auditor) failed(ctx context.Context, uuid string, err error) {
	text := ""
	if err != nil {
		text = strings.Join(strings.Fields(err.Error()), " ")
	}
	if text != a.failures[uuid] && text != "" {
		klog.FromContext(ctx).Error(err, "It is not known who uses a GPU", "gpu", uuid)
	}
	if a.failures[uuid] = text; text == "" {
		delete(a.failures, uuid)
	}
}
