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

package isolation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/container"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/hook"
	"github.com/memslice/memslice/pkg/state"
)

// Containers finds containers on this machine.
type Containers interface {
	// Find is the container that a process is in.
	Find(pid int) (container.Container, error)
	// Exists tells whether a cgroup is still there.
	Exists(cgroup string) bool
}

// Limits are the driver's, on the memory that a cgroup has of a GPU.
type Limits interface {
	// SetMemoryLimit sets one, in bytes.
	SetMemoryLimit(ctx context.Context, uuid, cgroup string, bytes uint64) error
	// MemoryLimit reads one. found is false where there is none.
	MemoryLimit(ctx context.Context, uuid, cgroup string) (bytes uint64, found bool, err error)
}

// Options of a Confiner. All but Now are required.
type Options struct {
	// Dir is where it is kept which containers have which shares.
	Dir        string
	Containers Containers
	Limits     Limits

	// Record is a prepared claim.
	Record func(context.Context, types.UID) (r state.Record, found bool, err error)

	// Reserved tells whether a prepared claim is reserved for a pod, by its UID.
	Reserved func(ctx context.Context, r state.Record, pod string) (bool, error)

	Now func() time.Time // nil means time.Now
}

// Confiner holds containers to what they were granted. It is safe for concurrent
// use.
type Confiner struct {
	Options
	records records

	mu sync.Mutex // held while limits are set, so that no sum is outdated
}

// New makes a Confiner.
func New(o Options) (*Confiner, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	records, err := openRecords(o.Dir)
	return &Confiner{Options: o, records: records}, err
}

// Confine limits the container of a process, and its pod, before the container's
// program starts. After an error the container must not be started.
func (c *Confiner) Confine(ctx context.Context, r hook.Request) error {
	share := Share{Claim: types.UID(r.Claim), Device: r.Device}
	record, grant, err := c.granted(ctx, share)
	if err != nil {
		return err
	}
	name := record.Namespace + "/" + record.Name
	found, err := c.Containers.Find(r.PID)
	if err != nil {
		return fmt.Errorf("claim %s: which container process %d is in: %w", name, r.PID, err)
	}
	reserved, err := c.reserved(ctx, record, found.Pod, share)
	if err != nil {
		return fmt.Errorf("claim %s: whether it is reserved for pod %s: %w", name, found.Pod, err)
	}
	if !reserved {
		return fmt.Errorf("claim %s is not reserved for pod %s, in which process %d is", name, found.Pod, r.PID)
	}
	if err := c.confine(ctx, found, share); err != nil {
		return fmt.Errorf("claim %s, request %q: %w", name, grant.Request, err)
	}
	klog.FromContext(ctx).V(2).Info("Limited the GPU memory of a container", "claim", klog.KRef(record.Namespace, record.Name), "claimUID", record.UID,
		"request", grant.Request, "gpu", grant.UUID, "bytes", grant.Memory, "podUID", found.Pod, "container", found.ID)
	return nil
}

// granted is what a share of a prepared claim is.
func (c *Confiner) granted(ctx context.Context, s Share) (state.Record, gpu.Grant, error) {
	if err := claim.ValidateUID(s.Claim); err != nil {
		return state.Record{}, gpu.Grant{}, err
	}
	record, found, err := c.Record(ctx, s.Claim)
	switch {
	case err != nil:
		return record, gpu.Grant{}, fmt.Errorf("claim %s: %w", s.Claim, err)
	case !found || record.Phase != state.Prepared:
		return record, gpu.Grant{}, fmt.Errorf("claim %s is not prepared on this node; the kubelet prepares it again", s.Claim)
	case s.Device < 0 || s.Device >= len(record.Grants):
		return record, gpu.Grant{}, fmt.Errorf("claim %s/%s has %d devices, and none with index %d", record.Namespace, record.Name, len(record.Grants), s.Device)
	}
	return record, record.Grants[s.Device], nil
}

// reserved asks the API server, unless another container of the pod has the share
// already: containers restart also while the API server is away.
func (c *Confiner) reserved(ctx context.Context, r state.Record, pod string, share Share) (bool, error) {
	all, err := c.records.all(ctx)
	if err != nil {
		return false, err
	}
	if slices.Contains(ofPod(pod, all), share) {
		return true, nil
	}
	return c.Reserved(ctx, r, pod)
}

// confine notes the container before it limits it, so that a limit is never
// without somebody who looks after it.
func (c *Confiner) confine(ctx context.Context, found container.Container, share Share) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := c.records.all(ctx)
	if err != nil {
		return err
	}
	held := Held{Container: found, Since: c.Now()}
	at := slices.IndexFunc(all, func(h Held) bool { return h.Container == found })
	if at < 0 {
		at, all = len(all), append(all, held)
	}
	all[at] = all[at].with(share)
	if err := c.records.put(all[at]); err != nil {
		return err
	}
	known := knownGrants{ctx: ctx, c: c}
	err = errors.Join(
		c.limit(ctx, found.PodCgroup, amounts(ofPod(found.Pod, all), known.grant)),
		c.limit(ctx, found.Cgroup, amounts(all[at].Shares, known.grant)))
	return errors.Join(err, known.err)
}

// limit sets the limits of a cgroup, and reads them back.
func (c *Confiner) limit(ctx context.Context, cgroup string, amounts map[string]uint64) error {
	for uuid, bytes := range amounts {
		if err := c.Limits.SetMemoryLimit(ctx, uuid, cgroup, bytes); err != nil {
			return err
		}
		got, found, err := c.Limits.MemoryLimit(ctx, uuid, cgroup)
		if err != nil {
			return err
		}
		if !found || got != bytes {
			return fmt.Errorf("GPU %s: cgroup %s was limited to %d bytes of its memory, and the driver says %s", uuid, cgroup, bytes, says(got, found))
		}
	}
	return nil
}

func says(bytes uint64, found bool) string {
	if !found {
		return "that it has no limit"
	}
	return fmt.Sprintf("%d", bytes)
}

// knownGrants looks grants up, and keeps what went wrong.
type knownGrants struct {
	ctx context.Context
	c   *Confiner
	err error
}

func (k *knownGrants) grant(s Share) (gpu.Grant, bool) {
	record, found, err := k.c.Record(k.ctx, s.Claim)
	if err != nil {
		k.err = fmt.Errorf("claim %s: %w", s.Claim, err)
	}
	if err != nil || !found || s.Device >= len(record.Grants) {
		return gpu.Grant{}, false
	}
	return record.Grants[s.Device], true
}
