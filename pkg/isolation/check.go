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

	"k8s.io/klog/v2"
)

// Limit is that of a container on a GPU, as it was found.
type Limit struct {
	Held
	GPU string // UUID

	// Bytes is what was read back.
	Bytes uint64

	// Repaired tells that the limit, or that of the pod, was gone or another one,
	// and was set again.
	Repaired bool

	// Err is why it is unknown whether the limit holds.
	Err error
}

// Check compares the limits on a GPU with what they should be, and puts right
// what is not. It forgets containers that are no more.
func (c *Confiner) Check(ctx context.Context, uuid string) ([]Limit, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := c.present(ctx)
	if err != nil {
		return nil, err
	}
	known := knownGrants{ctx: ctx, c: c}
	var limits []Limit
	pods := map[string]bool{}
	for _, h := range all {
		want, ok := amounts(h.Shares, known.grant)[uuid]
		if !ok {
			continue
		}
		l := Limit{Held: h, GPU: uuid}
		l.Bytes, l.Repaired, l.Err = c.check(ctx, uuid, h.Container.Cgroup, want)
		if pod := h.Container.Pod; !pods[pod] {
			pods[pod] = true
			_, repaired, err := c.check(ctx, uuid, h.Container.PodCgroup, amounts(ofPod(pod, all), known.grant)[uuid])
			l.Repaired, l.Err = l.Repaired || repaired, errors.Join(l.Err, err)
		}
		limits = append(limits, l)
	}
	return limits, known.err
}

// present are the containers that there still are.
func (c *Confiner) present(ctx context.Context) ([]Held, error) {
	all, err := c.records.all(ctx)
	if err != nil {
		return nil, err
	}
	var present []Held
	for _, h := range all {
		if c.Containers.Exists(h.Container.Cgroup) {
			present = append(present, h)
			continue
		}
		if err := c.records.remove(h); err != nil {
			return nil, err
		}
	}
	return present, nil
}

// check reads the limit of a cgroup, and sets it where it is another one.
func (c *Confiner) check(ctx context.Context, uuid, cgroup string, want uint64) (bytes uint64, repaired bool, err error) {
	bytes, found, err := c.Limits.MemoryLimit(ctx, uuid, cgroup)
	if err == nil && found && bytes == want {
		return bytes, false, nil
	}
	if err == nil {
		err = c.limit(ctx, cgroup, map[string]uint64{uuid: want})
	}
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Set a limit of GPU memory again that was not as it should be", "gpu", uuid, "cgroup", cgroup, "bytes", want, "found", says(bytes, found))
		return want, true, nil
	case !c.Containers.Exists(cgroup):
		// It ended in the meantime.
		return 0, false, nil
	}
	return 0, false, fmt.Errorf("the limit of cgroup %s: %w", cgroup, err)
}

// Holding tells which shares a container was given, by its ID.
func (c *Confiner) Holding(ctx context.Context) (map[string][]Share, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := c.present(ctx)
	if err != nil {
		return nil, err
	}
	holding := make(map[string][]Share, len(all))
	for _, h := range all {
		holding[h.Container.ID] = h.Shares
	}
	return holding, nil
}
