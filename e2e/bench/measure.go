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

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/e2e/harness"
	"github.com/memslice/memslice/pkg/gpu"
)

// Where pods and their claims are, as whom the pods would run, and where the
// claims are that fill GPUs.
const (
	namespace       = "bench"
	account         = "bench"
	filledNamespace = "bench-filled"
)

// parallel is how many requests are under way: more would only queue.
const parallel = 16

// bench measures one layout at a time on nodes that are all alike.
type bench struct {
	client   kubernetes.Interface
	machines []machine
	pods     int
	limit    time.Duration // for placing the pods once
	now      func() time.Time
	// schedulerTime is the CPU time that the scheduler has used so far.
	schedulerTime func() (time.Duration, error)
}

// prepare makes what all measurements share.
func (b *bench) prepare(ctx context.Context) error {
	for _, name := range []string{namespace, filledNamespace} {
		_, err := b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	// Not the default one: that appears some time later.
	_, err := b.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create service account %s: %w", account, err)
	}
	return addNodes(ctx, b.client, b.machines)
}

func (b *bench) publish(ctx context.Context, p publication) error {
	return each(ctx, b.machines, func(ctx context.Context, m machine) error {
		resources, err := p.resources(m)
		if err != nil {
			return err
		}
		for _, slice := range resourceSlices(m.name, resources) {
			if _, err := b.client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("publish on %s: %w", m.name, err)
			}
		}
		return nil
	})
}

// fill gives the GPUs of each node away, from the given one to before the other.
func (b *bench) fill(ctx context.Context, p publication, from, to int) error {
	return each(ctx, b.machines, func(ctx context.Context, m machine) error {
		resources, err := p.resources(m)
		if err != nil {
			return err
		}
		wanted := full(m.name, resourceSlices(m.name, resources), from, to)
		claims := b.client.ResourceV1().ResourceClaims(filledNamespace)
		claim, err := claims.Create(ctx, wanted, metav1.CreateOptions{})
		if err == nil {
			claim.Status = wanted.Status
			_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("fill GPUs of %s: %w", m.name, err)
		}
		return nil
	})
}

// sample places the pods once and removes them.
func (b *bench) sample(ctx context.Context, kind claimKind) (Sample, error) {
	// One that does not count, so that the scheduler knows the slices and has
	// compiled the selectors.
	if _, err := b.place(ctx, kind, "first", 1); err != nil {
		return Sample{}, err
	}
	before, err := b.schedulerTime()
	if err != nil {
		return Sample{}, err
	}
	took, err := b.place(ctx, kind, "pod", b.pods)
	if err != nil {
		return Sample{}, err
	}
	after, err := b.schedulerTime()
	if err != nil {
		return Sample{}, err
	}
	return Sample{
		PodsPerSecond:   float64(b.pods) / took.Seconds(),
		SchedulerMillis: (after - before).Seconds() * 1000 / float64(b.pods),
	}, b.clear(ctx)
}

// place makes pods with a claim each, and returns how long it took from the first
// pod's creation to the last one's binding. The claims are made before that: it
// takes as long whatever is published.
func (b *bench) place(ctx context.Context, kind claimKind, prefix string, count int) (time.Duration, error) {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	err := each(ctx, names, func(ctx context.Context, name string) error {
		_, err := b.client.ResourceV1().ResourceClaims(namespace).Create(ctx, claim(name, kind), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("create claims: %w", err)
	}
	// From before the first is there.
	before, err := b.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("list pods: %w", err)
	}

	limited, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	began := b.now()
	work, limited := errgroup.WithContext(limited)
	work.Go(func() error { return b.awaitBound(limited, before.ResourceVersion, names) })
	work.Go(func() error {
		return each(limited, names, func(ctx context.Context, name string) error {
			if _, err := b.client.CoreV1().Pods(namespace).Create(ctx, pod(name), metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create pods: %w", err)
			}
			return nil
		})
	})
	err = work.Wait()
	return b.now().Sub(began), err
}

// awaitBound returns when all pods have a node.
func (b *bench) awaitBound(ctx context.Context, resourceVersion string, names []string) error {
	pending := map[string]string{}
	for _, name := range names {
		pending[name] = "it is not there"
	}
	pods := b.client.CoreV1().Pods(namespace)
	watcher := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return pods.Watch(ctx, o) }}
	_, err := watchtools.Until(ctx, resourceVersion, watcher, func(event watch.Event) (bool, error) {
		p, isPod := event.Object.(*corev1.Pod)
		if !isPod {
			return false, nil
		}
		if p.Spec.NodeName != "" {
			delete(pending, p.Name)
		} else if _, waiting := pending[p.Name]; waiting {
			pending[p.Name] = whyPending(p)
		}
		return len(pending) == 0, nil
	})
	if err == nil {
		return nil
	}
	for name, why := range pending {
		return fmt.Errorf("wait for %d pods: %d were not placed, such as %s: %s: %w", len(names), len(pending), name, why, err)
	}
	return fmt.Errorf("wait for pods: %w", err)
}

func whyPending(p *corev1.Pod) string {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			return condition.Message
		}
	}
	return "the scheduler has not tried it"
}

// clear removes pods and claims, and returns when they are gone.
func (b *bench) clear(ctx context.Context) error {
	err := errors.Join(
		b.client.CoreV1().Pods(namespace).DeleteCollection(ctx, atOnce(), metav1.ListOptions{}),
		b.client.ResourceV1().ResourceClaims(namespace).DeleteCollection(ctx, atOnce(), metav1.ListOptions{}),
	)
	if err != nil {
		return fmt.Errorf("remove the pods and claims: %w", err)
	}
	// The controller manager takes the allocations back.
	return b.awaitNoClaims(ctx, namespace)
}

// withdraw removes what publish and fill made.
func (b *bench) withdraw(ctx context.Context) error {
	ours := metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + gpu.DriverName}
	err := errors.Join(
		b.client.ResourceV1().ResourceClaims(filledNamespace).DeleteCollection(ctx, atOnce(), metav1.ListOptions{}),
		b.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, atOnce(), ours),
	)
	if err != nil {
		return fmt.Errorf("remove the ResourceSlices and what filled them: %w", err)
	}
	return b.awaitNoClaims(ctx, filledNamespace)
}

func (b *bench) awaitNoClaims(ctx context.Context, namespace string) error {
	return harness.Await(ctx, "the claims to be gone", func(ctx context.Context) (string, error) {
		left, err := b.client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(left.Items) == 0 {
			return "", err
		}
		return fmt.Sprintf("%d are left, such as %s", len(left.Items), left.Items[0].Name), nil
	})
}

func atOnce() metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
}

// each does the work for all, many at a time, until one fails.
func each[T any](ctx context.Context, all []T, work func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, one := range all {
		group.Go(func() error { return work(ctx, one) })
	}
	return group.Wait()
}
