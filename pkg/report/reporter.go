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

package report

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/audit"
	"github.com/memslice/memslice/pkg/gpu"
)

const (
	// fieldManager owns what this driver writes into claims.
	fieldManager = "memslice"
	// timeout is how long one request to the API server may take.
	timeout = 10 * time.Second
)

// Options of a Reporter. All but Now are required.
type Options struct {
	Client kubernetes.Interface
	Events record.EventRecorder

	// OnNode tells of a problem on the Node, when it appears.
	OnNode func(problem string)

	// Evicts tells whether pods that have more than a grant are evicted.
	Evicts func(gpu.Grant) bool

	// PeakInterval is how often a claim's status is written for the sake of a
	// higher peak.
	PeakInterval time.Duration

	Now func() time.Time // nil means time.Now
}

// Reporter tells what audits found. It must be told one snapshot after the other.
type Reporter struct {
	Options
	queue chan audit.Snapshot

	// What follows is used by Run only.
	told  map[types.UID]told
	since map[key]since
	edges map[string]bool // what was the case in the last snapshot
}

// New makes a Reporter.
func New(o Options) *Reporter {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Reporter{
		Options: o, queue: make(chan audit.Snapshot, 1),
		told: map[types.UID]told{}, since: map[key]since{}, edges: map[string]bool{},
	}
}

// Audited has a snapshot told. It does not wait: where the last one is still being
// told, a later one takes the place of the next.
func (r *Reporter) Audited(_ context.Context, s audit.Snapshot) {
	for {
		select {
		case r.queue <- s:
			return
		default:
		}
		select {
		case <-r.queue:
		default:
		}
	}
}

// Run tells of snapshots until ctx is done.
func (r *Reporter) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-r.queue:
			r.tell(ctx, s)
		}
	}
}

func (r *Reporter) tell(ctx context.Context, s audit.Snapshot) {
	edges := map[string]bool{}
	for _, c := range s.Claims {
		r.status(ctx, c)
		for i, d := range c.Devices {
			r.use(ctx, c, d, fmt.Sprintf("%s/%d", c.UID, i), edges)
		}
	}
	for _, g := range s.GPUs {
		r.foreign(ctx, g, edges)
	}
	r.edges = edges
	r.forget(s)
}

// status writes a claim's status where there is something new in it. What could
// not be written is tried again with the next snapshot.
func (r *Reporter) status(ctx context.Context, c audit.Claim) {
	now := tell(c, r.Now())
	if former, ok := r.told[c.UID]; ok && !now.outdates(former, r.PeakInterval) {
		return
	}
	err := r.write(ctx, c)
	switch {
	case err == nil:
		r.told[c.UID] = now
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), ctx.Err() != nil:
		// The claim is gone, and soon unprepared, or this process is.
	default:
		klog.FromContext(ctx).Error(err, "Writing what a claim was granted into its status; trying again", "claim", klog.KRef(c.Namespace, c.Name), "claimUID", c.UID)
	}
}

// write updates the claim, as patches do not do: the API server refuses them where
// the allocation has configuration that it would format otherwise, as it takes that
// for a change.
func (r *Reporter) write(ctx context.Context, c audit.Claim) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	entries, err := r.entries(c)
	if err != nil {
		return err
	}
	claims := r.Client.ResourceV1().ResourceClaims(c.Namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := claims.Get(ctx, c.Name, metav1.GetOptions{})
		if err != nil || object.UID != c.UID || object.Status.Allocation == nil {
			return err // it is gone
		}
		merge(&object.Status, entries)
		_, err = claims.UpdateStatus(ctx, object, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
}

// use tells on the pods when a claim begins to have too much, and when no longer,
// and when a limit was set again.
func (r *Reporter) use(ctx context.Context, c audit.Claim, d audit.Device, name string, edges map[string]bool) {
	granted, claim := quantity(d.Grant.Memory), c.Namespace+"/"+c.Name
	over := "over " + name
	switch {
	case !d.Known:
		edges[over] = r.edges[over]
	case d.Over():
		edges[over] = true
		if !r.edges[over] {
			r.onPods(c, corev1.EventTypeWarning, ReasonPodOverUse, "processes of claim %s have %s of GPU %s, and it was granted %s: %s, and others on the GPU may run out of memory", claim, quantity(int64(d.Used)), d.Grant.UUID, granted, why(d.Grant))
		}
		if r.Evicts(d.Grant) {
			r.evict(ctx, c, d)
		}
	case r.edges[over]:
		r.onPods(c, corev1.EventTypeNormal, ReasonPodWithinGrant, "processes of claim %s have no more of GPU %s than the %s that were granted", claim, d.Grant.UUID, granted)
	}
	for _, l := range d.Limits {
		if l.Repaired {
			r.onPods(c, corev1.EventTypeWarning, ReasonPodLimitRestored, "the limit of %s on the memory of GPU %s that claim %s was granted was gone or another one, and is set again: somebody else on the node changes limits", granted, d.Grant.UUID, claim)
		}
	}
}

// why a claim can have more than it was granted, and what to do about it.
func why(g gpu.Grant) string {
	if g.Isolation == gpu.IsolationCgroup {
		return "its pods are limited each for itself, not together (give each a claim of its own)"
	}
	return "nothing holds them to that (ask for more, or for a GPU with isolation)"
}

// Reasons of events on pods.
const (
	ReasonPodOverUse       = "GPUMemoryOverUse"
	ReasonPodWithinGrant   = "GPUMemoryWithinGrant"
	ReasonPodLimitRestored = "GPUMemoryLimitRestored"
	ReasonPodEvicted       = "GPUMemoryEviction"
)

func (r *Reporter) onPods(c audit.Claim, kind, reason, format string, args ...any) {
	for _, p := range c.Pods {
		r.Events.Eventf(reference(c, p), kind, reason, format, args...)
	}
}

func reference(c audit.Claim, p audit.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: c.Namespace, Name: p.Name, UID: types.UID(p.UID)}
}

// evict asks for the end of a claim's pods. A disruption budget may refuse; then
// the next audit asks again.
func (r *Reporter) evict(ctx context.Context, c audit.Claim, d audit.Device) {
	for _, p := range c.Pods {
		uid := types.UID(p.UID)
		ctx, cancel := context.WithTimeout(ctx, timeout)
		err := r.Client.PolicyV1().Evictions(c.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: c.Namespace, Name: p.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
		})
		cancel()
		switch {
		case err == nil:
			r.Events.Eventf(reference(c, p), corev1.EventTypeWarning, ReasonPodEvicted,
				"evicted: processes of claim %s/%s have %s of GPU %s, and it was granted %s (isolation.onOverUse is Evict on this node)",
				c.Namespace, c.Name, quantity(int64(d.Used)), d.Grant.UUID, quantity(d.Grant.Memory))
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		default:
			klog.FromContext(ctx).Error(err, "Evicting a pod that has too much GPU memory; trying again", "pod", klog.KRef(c.Namespace, p.Name), "podUID", p.UID)
		}
	}
}

// foreign tells on the Node when a process begins to use a GPU without a claim.
func (r *Reporter) foreign(ctx context.Context, g audit.GPU, edges map[string]bool) {
	for _, p := range g.Foreign {
		edge := fmt.Sprintf("foreign %s %d %s", g.UUID, p.PID, p.Command)
		edges[edge] = true
		if !r.edges[edge] {
			problem := fmt.Sprintf("GPU %s: process %d (%s) has %s of its memory without a claim, which those with claims may lack; end it, or keep the GPU from being offered (docs/configuration.md)",
				g.UUID, p.PID, p.Command, quantity(int64(p.Memory)))
			klog.FromContext(ctx).Info("A GPU is used without a claim", "problem", problem)
			r.OnNode(problem)
		}
	}
}

// forget drops what is known of claims that are no longer prepared.
func (r *Reporter) forget(s audit.Snapshot) {
	prepared := map[types.UID]bool{}
	for _, c := range s.Claims {
		prepared[c.UID] = true
	}
	for uid := range r.told {
		if !prepared[uid] {
			delete(r.told, uid)
		}
	}
	for k := range r.since {
		if !prepared[k.claim] {
			delete(r.since, k)
		}
	}
}
