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

// Package emulator makes the calls of a kubelet that concern dynamic resource
// allocation, for machines on which no kubelet can run. It registers a Node,
// finds drivers by their registration sockets, has the claims of the node's
// pods prepared and unprepared, and records on each pod what its containers
// would find.
//
// It starts no container and says so wherever it marks a pod as running. It
// knows nothing of any particular driver.
package emulator

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// Options of an emulated kubelet. All are required.
type Options struct {
	Client   kubernetes.Interface
	NodeName string
	// KubeletRootDir is the folder below which drivers put their sockets.
	KubeletRootDir string
	// CDIRoot is the folder of CDI specs that a container runtime would read.
	CDIRoot string
}

// RegistryDir is where drivers put their registration sockets.
func (o Options) RegistryDir() string { return filepath.Join(o.KubeletRootDir, "plugins_registry") }

// Run serves until ctx is done. It returns an error only when it cannot start.
func Run(ctx context.Context, o Options) error {
	if err := registerNode(ctx, o.Client, o.NodeName); err != nil {
		return err
	}
	go renewLease(ctx, o.Client, o.NodeName)

	plugins := newPlugins(o.RegistryDir())
	go plugins.discover(ctx, time.Second)

	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: o.Client.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet-emulator", Host: o.NodeName})

	onNode := func(list *metav1.ListOptions) {
		list.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", o.NodeName).String()
	}
	factory := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithTweakListOptions(onNode))
	claims := &claims{client: o.Client, plugins: plugins, cdiRoot: o.CDIRoot, users: map[claimKey]*preparedClaim{}}
	pods, err := newPods(o.Client, claims, recorder, factory.Core().V1().Pods())
	if err != nil {
		return fmt.Errorf("watch the pods of node %s: %w", o.NodeName, err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	pods.run(ctx)
	factory.Shutdown()
	return nil
}
