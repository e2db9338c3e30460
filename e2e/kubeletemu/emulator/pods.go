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

package emulator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/e2e/containerview"
)

const (
	// ViewsAnnotation has, on a pod that an emulated kubelet "runs", what each
	// of its containers would find, as JSON: see Views.
	ViewsAnnotation = "e2e.memslice.dev/container-views"
	// NoContainerRan is the reason in the status of such a pod.
	NoContainerRan = "NoContainerRan"

	noContainerRan = "an emulated kubelet prepared the devices of this pod; no container was started"
)

// Views returns what the containers of a pod would find, by container name. It
// is nil for a pod that no emulated kubelet has handled.
func Views(pod *corev1.Pod) (map[string]containerview.View, error) {
	text, ok := pod.Annotations[ViewsAnnotation]
	if !ok {
		return nil, nil
	}
	var views map[string]containerview.View
	if err := json.Unmarshal([]byte(text), &views); err != nil {
		return nil, fmt.Errorf("annotation %s of pod %s/%s: %w", ViewsAnnotation, pod.Namespace, pod.Name, err)
	}
	return views, nil
}

// pods follows the pods of the node.
type pods struct {
	client   kubernetes.Interface
	claims   *claims
	recorder record.EventRecorder
	lister   corev1listers.PodLister
	queue    workqueue.TypedRateLimitingInterface[podKey]
}

type podKey struct {
	name types.NamespacedName
	uid  types.UID
}

func newPods(client kubernetes.Interface, claims *claims, recorder record.EventRecorder, informer corev1informers.PodInformer) (*pods, error) {
	p := &pods{
		client: client, claims: claims, recorder: recorder, lister: informer.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](time.Second, time.Minute)),
	}
	enqueue := func(object any) {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		if pod, ok := object.(*corev1.Pod); ok {
			p.queue.Add(podKey{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID})
		}
	}
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, changed any) { enqueue(changed) },
		DeleteFunc: enqueue,
	})
	return p, err
}

func (p *pods) run(ctx context.Context) {
	go func() {
		<-ctx.Done()
		p.queue.ShutDown()
	}()
	for {
		key, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		if err := p.sync(ctx, key); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Pod failed, will retry", "pod", key.name)
			p.queue.AddRateLimited(key)
		} else {
			p.queue.Forget(key)
		}
		p.queue.Done(key)
	}
}

func (p *pods) sync(ctx context.Context, key podKey) error {
	pod, err := p.lister.Pods(key.name.Namespace).Get(key.name.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && pod.UID != key.uid:
		return p.claims.release(ctx, key.uid)
	case err != nil:
		return err
	case pod.DeletionTimestamp != nil:
		return p.terminate(ctx, pod)
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return p.claims.release(ctx, pod.UID)
	}
	// A running pod too: after a restart this is how its claims become known.
	if err := p.claims.prepare(ctx, pod); err != nil {
		p.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedPrepareDynamicResources",
			"Failed to prepare dynamic resources: %v", err)
		return err
	}
	if pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	return p.start(ctx, pod)
}

// start records what the pod's containers would find and marks it as running.
func (p *pods) start(ctx context.Context, cached *corev1.Pod) error {
	// The cache may not know yet that this was done.
	pod, err := p.client.CoreV1().Pods(cached.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the pod: %w", err)
	}
	if pod.UID != cached.UID || pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
		return nil
	}
	views, err := p.claims.views(pod)
	if err != nil {
		p.recorder.Eventf(pod, corev1.EventTypeWarning, "Failed", "Error: failed to create container: %v", err)
		return err
	}
	text, err := json.Marshal(views)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, ViewsAnnotation, string(text))
	if pod, err = p.client.CoreV1().Pods(pod.Namespace).Update(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("annotate the pod: %w", err)
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Reason, pod.Status.Message = NoContainerRan, noContainerRan
	setReady(&pod.Status)
	if _, err := p.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("set the pod's status: %w", err)
	}
	return nil
}

// setReady lets a Deployment of such pods become available.
func setReady(status *corev1.PodStatus) {
	now := metav1.Now()
	status.StartTime = &now
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now,
			Reason: NoContainerRan, Message: noContainerRan,
		})
	}
}

// terminate has the claims unprepared and then lets the pod go.
func (p *pods) terminate(ctx context.Context, pod *corev1.Pod) error {
	if err := p.claims.adopt(ctx, pod); err != nil {
		return err
	}
	if err := p.claims.release(ctx, pod.UID); err != nil {
		return fmt.Errorf("release the pod's claims: %w", err)
	}
	now := int64(0)
	err := p.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the pod: %w", err)
	}
	return nil
}
