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

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// otherDriver is a driver that has nothing to do with memslice: one device, that
// needs nothing in containers.
type otherDriverPlugin struct {
	name string // of the driver and of its class

	mutex    sync.Mutex
	prepared map[types.UID]bool
}

// startOtherDriver serves the node until the scenario ends.
func startOtherDriver(k *kit) *otherDriverPlugin {
	k.Helper()
	p := &otherDriverPlugin{name: "nic.example.com", prepared: map[types.UID]bool{}}
	classes := k.Client.ResourceV1().DeviceClasses()
	_, err := classes.Create(k.ctx, &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec:       resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{selector(`device.driver == "` + p.name + `"`)}},
	}, metav1.CreateOptions{})
	k.ok(err)
	data := filepath.Join(k.KubeletRoot(), "plugins", p.name)
	k.ok(os.MkdirAll(data, 0o750))
	k.afterward(func() error {
		return errors.Join(os.RemoveAll(data), classes.Delete(k.ctx, p.name, metav1.DeleteOptions{}),
			k.Client.ResourceV1().ResourceSlices().DeleteCollection(k.ctx, metav1.DeleteOptions{},
				metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + p.name}))
	})
	helper, err := kubeletplugin.Start(k.ctx, p,
		kubeletplugin.DriverName(p.name), kubeletplugin.NodeName(k.NodeName), kubeletplugin.KubeClient(k.Client),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(k.KubeletRoot(), "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data))
	k.ok(err)
	k.afterward(func() error {
		helper.Stop()
		return nil
	})
	k.ok(helper.PublishResources(k.ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		k.NodeName: {Slices: []resourceslice.Slice{{Devices: []resourceapi.Device{{Name: "nic-0"}}}}},
	}}))
	return p
}

func (p *otherDriverPlugin) holds(claim types.UID) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.prepared[claim]
}

func (p *otherDriverPlugin) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		p.prepared[claim.UID] = true
		results[claim.UID] = kubeletplugin.PrepareResult{}
	}
	return results, nil
}

func (p *otherDriverPlugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	results := map[types.UID]error{}
	for _, claim := range claims {
		delete(p.prepared, claim.UID)
		results[claim.UID] = nil
	}
	return results, nil
}

func (p *otherDriverPlugin) HandleError(context.Context, error, string) {}

func (p *otherDriverPlugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
