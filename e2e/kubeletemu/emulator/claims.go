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
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/memslice/memslice/e2e/containerview"
)

// claims has the claims of pods prepared by their drivers, and unprepared after
// the last of the pods. It is used by one goroutine.
type claims struct {
	client  kubernetes.Interface
	plugins *plugins
	cdiRoot string
	users   map[claimKey]*preparedClaim
}

type claimKey struct {
	name types.NamespacedName
	uid  types.UID
}

func (k claimKey) message() *drav1.Claim {
	return &drav1.Claim{Namespace: k.name.Namespace, Name: k.name.Name, Uid: string(k.uid)}
}

type preparedClaim struct {
	pods    map[types.UID]bool
	drivers map[string][]*drav1.Device // nil until its driver has answered
}

// prepare has every claim of the pod prepared. It may be called again.
func (c *claims) prepare(ctx context.Context, pod *corev1.Pod) error {
	for name, mustCheckOwner := range resourceclaim.PodClaims(pod) {
		claim, err := c.client.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("fetch ResourceClaim %s: %w", name, err)
		}
		if mustCheckOwner {
			if err := resourceclaim.IsForPod(pod, claim, false); err != nil {
				return err
			}
		}
		if claim.Status.Allocation == nil || !resourceclaim.IsReservedForPod(pod, claim, false) {
			return fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, name, claim.UID)
		}
		// Known before the call: what fails half-way must be unprepared as well.
		key, prepared := c.know(pod.UID, claim)
		for _, driver := range slices.Sorted(maps.Keys(prepared.drivers)) {
			if prepared.drivers[driver] != nil {
				continue
			}
			devices, err := c.plugins.prepare(ctx, driver, key.message())
			if err != nil {
				return err
			}
			prepared.drivers[driver] = append([]*drav1.Device{}, devices...)
		}
	}
	return nil
}

// adopt learns which claims the pod has, after a restart, without having them
// prepared again: a pod that ends must not depend on that.
func (c *claims) adopt(ctx context.Context, pod *corev1.Pod) error {
	for name := range resourceclaim.PodClaims(pod) {
		claim, err := c.client.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("fetch ResourceClaim %s: %w", name, err)
		}
		if claim.Status.Allocation != nil && resourceclaim.IsReservedForPod(pod, claim, false) {
			c.know(pod.UID, claim)
		}
	}
	return nil
}

// know records that a pod uses a claim.
func (c *claims) know(pod types.UID, claim *resourceapi.ResourceClaim) (claimKey, *preparedClaim) {
	key := claimKey{types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, claim.UID}
	prepared := c.users[key]
	if prepared == nil {
		prepared = &preparedClaim{pods: map[types.UID]bool{}, drivers: map[string][]*drav1.Device{}}
		for _, result := range claim.Status.Allocation.Devices.Results {
			prepared.drivers[result.Driver] = nil
		}
		c.users[key] = prepared
	}
	prepared.pods[pod] = true
	return key, prepared
}

// release has those claims unprepared that only this pod used.
func (c *claims) release(ctx context.Context, pod types.UID) error {
	var failed []error
	for key, prepared := range c.users {
		if !prepared.pods[pod] {
			continue
		}
		if len(prepared.pods) > 1 {
			delete(prepared.pods, pod)
			continue
		}
		if err := c.unprepare(ctx, key, prepared); err != nil {
			failed = append(failed, err)
			continue
		}
		delete(c.users, key)
	}
	return errors.Join(failed...)
}

func (c *claims) unprepare(ctx context.Context, key claimKey, prepared *preparedClaim) error {
	for driver := range prepared.drivers {
		if err := c.plugins.unprepare(ctx, driver, key.message()); err != nil {
			return err
		}
	}
	return nil
}

// views tells what each container of a pod would find, by container name.
func (c *claims) views(pod *corev1.Pod) (map[string]containerview.View, error) {
	views := map[string]containerview.View{}
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		devices, err := c.devices(pod, container)
		if err != nil {
			return nil, err
		}
		view, err := containerview.FromCDI(c.cdiRoot, devices)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", container.Name, err)
		}
		views[container.Name] = view
	}
	return views, nil
}

// devices are the CDI devices that a container of the pod gets.
func (c *claims) devices(pod *corev1.Pod, container *corev1.Container) ([]string, error) {
	var ids []string
	for _, wanted := range container.Resources.Claims {
		at := slices.IndexFunc(pod.Spec.ResourceClaims, func(r corev1.PodResourceClaim) bool { return r.Name == wanted.Name })
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[at])
		if err != nil {
			return nil, err
		}
		if name != nil {
			ids = append(ids, c.devicesOf(pod, *name, wanted.Request)...)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		for _, mapping := range extended.RequestMappings {
			if mapping.ContainerName == container.Name {
				ids = append(ids, c.devicesOf(pod, extended.ResourceClaimName, mapping.RequestName)...)
			}
		}
	}
	return ids, nil
}

// devicesOf are the CDI devices of one request of a claim, or of all of them.
func (c *claims) devicesOf(pod *corev1.Pod, claim, request string) []string {
	var ids []string
	for key, prepared := range c.users {
		if key.name.Namespace != pod.Namespace || key.name.Name != claim || !prepared.pods[pod.UID] {
			continue
		}
		for _, driver := range slices.Sorted(maps.Keys(prepared.drivers)) {
			for _, device := range prepared.drivers[driver] {
				if request == "" || len(device.RequestNames) == 0 || slices.Contains(device.RequestNames, request) {
					ids = append(ids, device.CdiDeviceIds...)
				}
			}
		}
	}
	return ids
}
