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
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	cdispec "tags.cncf.io/container-device-interface/specs-go"
)

const (
	testDriver = "gpu.example.com"
	testNode   = "emulated"
)

// world is a fake API server, a real driver helper and an emulated kubelet.
type world struct {
	t      *testing.T
	client kubernetes.Interface
	dir    string
	driver *testPlugin
}

// newWorld starts a driver but no emulator.
func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	// Not t.TempDir: the names of tests make socket paths too long.
	dir, err := os.MkdirTemp("", "emu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{t: t, dir: dir, client: fake.NewClientset(objects...)}
	w.driver = &testPlugin{cdiRoot: filepath.Join(dir, "cdi"), prepared: map[types.UID]int{}}
	data := filepath.Join(dir, "plugins", testDriver)
	for _, path := range []string{w.driver.cdiRoot, data, filepath.Join(dir, "plugins_registry")} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	helper, err := kubeletplugin.Start(t.Context(), w.driver,
		kubeletplugin.DriverName(testDriver), kubeletplugin.NodeName(testNode), kubeletplugin.KubeClient(w.client),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(dir, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(helper.Stop)
	return w
}

// emulate runs an emulated kubelet until the returned function is called.
func (w *world) emulate() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Client: w.client, NodeName: testNode, KubeletRootDir: w.dir, CDIRoot: w.driver.cdiRoot})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the emulator failed: %v", err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

// until waits for something to become true.
func (w *world) until(what string, ready func(context.Context) bool) {
	w.t.Helper()
	err := wait.PollUntilContextTimeout(w.t.Context(), 20*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) { return ready(ctx), nil })
	if err != nil {
		w.t.Fatalf("waiting for %s: %v", what, err)
	}
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod, err := w.client.CoreV1().Pods("default").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pod
}

func (w *world) running(name string) func(context.Context) bool {
	return func(context.Context) bool { return w.pod(name).Status.Phase == corev1.PodRunning }
}

// remove does what the API server does for a DELETE: it leaves the end to the
// node.
func (w *world) remove(name string) {
	w.t.Helper()
	pod := w.pod(name)
	now := metav1.Now()
	pod.DeletionTimestamp = &now
	if _, err := w.client.CoreV1().Pods("default").Update(w.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.until("pod "+name+" to be gone", func(ctx context.Context) bool {
		_, err := w.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		return err != nil
	})
}

// newPod has one container per request of the claim.
func newPod(name, claim string, requests ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("pod-" + name)},
		Spec: corev1.PodSpec{
			NodeName:       testNode,
			ResourceClaims: []corev1.PodResourceClaim{{Name: "devices", ResourceClaimName: &claim}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, request := range requests {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "c-" + request, Resources: corev1.ResourceRequirements{
			Claims: []corev1.ResourceClaim{{Name: "devices", Request: request}},
		}})
	}
	return pod
}

// newClaim has one device per request and is reserved for the pods.
func newClaim(name string, requests, pods []string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("claim-" + name)},
		Status:     resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}},
	}
	for _, request := range requests {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: request, Driver: testDriver, Pool: testNode, Device: "gpu-0"})
	}
	for _, pod := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor,
			resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod, UID: types.UID("pod-" + pod)})
	}
	return claim
}

// testPlugin prepares a claim by writing a CDI spec with one device per request.
type testPlugin struct {
	cdiRoot string

	mutex    sync.Mutex
	prepared map[types.UID]int
	refuse   error
}

func (p *testPlugin) count(claim types.UID) int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.prepared[claim]
}

func (p *testPlugin) setRefusal(err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.refuse = err
}

func (p *testPlugin) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		if p.refuse != nil {
			results[claim.UID] = kubeletplugin.PrepareResult{Err: p.refuse}
			continue
		}
		var devices []kubeletplugin.Device
		spec := cdispec.Spec{Version: "0.8.0", Kind: testDriver + "/claim"}
		for _, result := range claim.Status.Allocation.Devices.Results {
			name := string(claim.UID) + "-" + result.Request
			spec.Devices = append(spec.Devices, cdispec.Device{Name: name, ContainerEdits: cdispec.ContainerEdits{
				Env:         []string{"MEMSLICE_FOR=" + result.Request, "OTHER=1"},
				DeviceNodes: []*cdispec.DeviceNode{{Path: "/dev/nvidia7", HostPath: "/dev/null"}, {Path: "/dev/null"}},
			}})
			devices = append(devices, kubeletplugin.Device{
				Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device,
				CDIDeviceIDs: []string{spec.Kind + "=" + name},
			})
		}
		text, err := json.Marshal(spec)
		if err == nil {
			err = os.WriteFile(p.specFile(claim.UID), text, 0o600)
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
		p.prepared[claim.UID]++
	}
	return results, nil
}

func (p *testPlugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(p.specFile(claim.UID))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		results[claim.UID] = err
		delete(p.prepared, claim.UID)
	}
	return results, nil
}

func (p *testPlugin) specFile(uid types.UID) string {
	return filepath.Join(p.cdiRoot, string(uid)+".json")
}

func (p *testPlugin) HandleError(context.Context, error, string) {}

func (p *testPlugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
