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

package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/config"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/inventory"
	"github.com/memslice/memslice/pkg/nvidia"
	"github.com/memslice/memslice/pkg/prepare"
	"github.com/memslice/memslice/pkg/probe"
	"github.com/memslice/memslice/pkg/state"
)

// scanner stands for the hardware.
type scanner struct{ err error }

func (s scanner) Scan(context.Context) (nvidia.Inventory, error) {
	if s.err != nil {
		return nvidia.Inventory{}, s.err
	}
	return nvidia.Inventory{GPUs: []gpu.GPU{{
		UUID: "GPU-1f5e9c0a-77b2-4d0e-9f8a-0123456789ab", Memory: &gpu.Memory{Total: 80 << 30},
	}}}, nil
}

// specs stands for the CDI directory.
type specs struct{ written map[types.UID]bool }

func (s specs) Write(_ context.Context, uid types.UID, grants []gpu.Assignment) ([]string, error) {
	s.written[uid] = true
	names := make([]string, len(grants))
	for i := range grants {
		names[i] = fmt.Sprintf("gpu.memslice.dev/claim=%s-%d", uid, i)
	}
	return names, nil
}
func (s specs) Remove(uid types.UID) error                        { delete(s.written, uid); return nil }
func (s specs) Exists(uid types.UID) (bool, error)                { return s.written[uid], nil }
func (s specs) Orphans(func(types.UID) bool) ([]types.UID, error) { return nil, nil }

func (scanner) SetMIGMode(context.Context, string, bool) error { return errors.New("no MIG here") }

// partitions stands for the MIG instances, of which there are none.
type partitions struct{}

func (partitions) Realise(context.Context, gpu.Grant, gpu.Device, []gpu.Grant) (gpu.Instance, error) {
	return gpu.Instance{}, nil
}
func (partitions) Release(context.Context, gpu.Grant) error { return nil }
func (partitions) Sweep(context.Context, []gpu.Grant) error { return nil }
func (partitions) Made(string, gpu.Partition) bool          { return false }

// newParts is what serve is given, with one GPU unless err says otherwise.
func newParts(t *testing.T, cfg *config.Config, err error, claims ...*resourceapi.ResourceClaim) (*fake.Clientset, *inventory.Inventory, *prepare.Preparer, specs) {
	t.Helper()
	if err := prepareHost(cfg); err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: cfg.NodeName, UID: "node"}})
	for _, c := range claims {
		if err := client.Tracker().Add(c); err != nil {
			t.Fatal(err)
		}
	}
	store, openErr := state.Open(t.Context(), cfg.StateDir(), state.Options{})
	if openErr != nil {
		t.Fatal(openErr)
	}
	devices := inventory.New(inventory.Options{
		Node: cfg.NodeName, Hardware: scanner{err}, Claims: store, Made: partitions{}.Made,
		Config: func(context.Context) (*v1alpha1.NodeConfig, error) { return cfg.LoadNodeConfig(nil) },
	})
	if refreshErr := devices.Refresh(t.Context()); !errors.Is(refreshErr, err) {
		t.Fatal(refreshErr)
	}
	written := specs{map[types.UID]bool{}}
	return client, devices, prepare.New(prepare.Config{
		Store: store, Specs: written, Partitions: partitions{}, Devices: devices, InUse: claimInUse(client, cfg.NodeName), BootID: "boot",
	}), written
}

func TestServe(t *testing.T) {
	for name, tc := range map[string]struct {
		scanErr   error
		liveness  string // in the answer; empty for healthy
		readiness string
	}{
		"with a GPU":       {},
		"without a driver": {scanErr: nvidia.ErrDriverUnavailable, readiness: nvidia.ErrDriverUnavailable.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			cfg.PodUID = "0b7c9a52"
			client, devices, preparer, _ := newParts(t, cfg, tc.scanErr)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- serve(ctx, cfg, newTestParts(t, cfg, client, devices, preparer)) }()

			check(t, cfg, probe.Liveness, tc.liveness)
			check(t, cfg, probe.Readiness, tc.readiness)

			cancel()
			if err := <-ended; err != nil {
				t.Errorf("asked to stop, it ended with %v", err)
			}
			for _, dir := range []string{cfg.RegistryDir(), cfg.PluginDir()} {
				if left, _ := filepath.Glob(filepath.Join(dir, "*.sock")); len(left) != 0 {
					t.Errorf("sockets left behind: %v", left)
				}
			}
		})
	}
}

// check waits until the plugin serves probes, and then for the answer.
func check(t *testing.T, cfg *config.Config, service, want string) {
	t.Helper()
	var err error
	for t.Context().Err() == nil {
		err = probe.Ask(t.Context(), cfg.HealthSocket(), service)
		starting := err != nil && (strings.Contains(err.Error(), "no such file") || strings.Contains(err.Error(), "connection refused"))
		if !starting {
			break
		}
	}
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: got %v, want %q", service, err, want)
	}
}

func TestServeEndsOnFailure(t *testing.T) {
	cfg := testConfig(t)
	restart := fmt.Errorf("%w: %w", nvidia.ErrDriverUnavailable, nvidia.ErrRestartRequired)
	client, devices, preparer, _ := newParts(t, cfg, restart)
	if err := serve(t.Context(), cfg, newTestParts(t, cfg, client, devices, preparer)); !errors.Is(err, nvidia.ErrRestartRequired) {
		t.Errorf("got %v, want %v", err, nvidia.ErrRestartRequired)
	}

	if err := os.RemoveAll(cfg.RegistryDir()); err != nil {
		t.Fatal(err)
	}
	client, devices, preparer, _ = newPartsAgain(t, cfg)
	if err := serve(t.Context(), cfg, newTestParts(t, cfg, client, devices, preparer)); err == nil {
		t.Error("it serves although it could not register")
	}
}

// newPartsAgain makes the parts where the kubelet's directory then disappears.
func newPartsAgain(t *testing.T, cfg *config.Config) (*fake.Clientset, *inventory.Inventory, *prepare.Preparer, specs) {
	t.Helper()
	if err := os.MkdirAll(cfg.RegistryDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(cfg.RegistryDir())
	return newParts(t, cfg, nil)
}

func share(uid types.UID, memory string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim-" + string(uid), UID: uid},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
				Request: "gpu", Driver: gpu.DriverName, Pool: "node", Device: "gpu-1f5e9c0a-77b2-slice",
				ShareID:          ptr.To[types.UID]("share-" + uid),
				ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{gpu.CapacityMemory: resource.MustParse(memory)},
			}}},
		}},
	}
}

func TestPlugin(t *testing.T) {
	cfg := testConfig(t)
	fits, tooMuch := share("1", "60Gi"), share("2", "60Gi")
	_, devices, preparer, written := newParts(t, cfg, nil, fits, tooMuch)
	p := plugin{devices: devices, preparer: preparer, prepared: func() {}, fail: func(err error) { t.Errorf("failed for good: %v", err) }}

	prepared, err := p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{fits, tooMuch})
	if err != nil {
		t.Fatal(err)
	}
	if got := prepared["1"]; got.Err != nil || len(got.Devices) != 1 || *got.Devices[0].ShareID != "share-1" {
		t.Errorf("the claim that fits: got %+v", got)
	}
	if got := prepared["2"]; got.Err == nil || !strings.Contains(got.Err.Error(), "default/claim-2") {
		t.Errorf("the claim that does not fit: got %+v, want an error that names it", got)
	}
	if !written.written["1"] || written.written["2"] {
		t.Errorf("CDI specs: %v, want that of claim 1 only", written.written)
	}

	unknown := kubeletplugin.NamespacedObject{UID: "3"}
	unprepared, err := p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: "1"}, {UID: "2"}, unknown})
	if err != nil || len(unprepared) != 3 {
		t.Fatalf("got %v, %v, want an entry for each of three claims", unprepared, err)
	}
	for uid, err := range unprepared {
		if err != nil {
			t.Errorf("claim %s: %v", uid, err)
		}
	}
	if len(written.written) != 0 {
		t.Errorf("CDI specs left behind: %v", written.written)
	}
}

func TestPluginWithoutDriver(t *testing.T) {
	cfg := testConfig(t)
	c := share("1", "1Gi")
	_, devices, preparer, _ := newParts(t, cfg, nvidia.ErrDriverUnavailable, c)
	prepared, err := plugin{devices: devices, preparer: preparer, prepared: func() {}}.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{c})
	if err != nil {
		t.Fatal(err)
	}
	if got := prepared["1"].Err; !errors.Is(got, nvidia.ErrDriverUnavailable) || !strings.Contains(got.Error(), "default/claim-1") {
		t.Errorf("got %v, want the claim and why", got)
	}
}

func TestHandleError(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		fatal bool
	}{
		"recoverable": {err: fmt.Errorf("conflict: %w", kubeletplugin.ErrRecoverable)},
		"fatal":       {err: errors.New("socket gone"), fatal: true},
	} {
		t.Run(name, func(t *testing.T) {
			var failed error
			plugin{fail: func(err error) { failed = err }}.HandleError(t.Context(), tc.err, "serving")
			if (failed != nil) != tc.fatal {
				t.Errorf("failed for good with %v, want %t", failed, tc.fatal)
			}
		})
	}
}

// newTestParts is what serves on a node where no claim is prepared.
func newTestParts(t *testing.T, cfg *config.Config, client kubernetes.Interface, devices *inventory.Inventory, preparer *prepare.Preparer) parts {
	t.Helper()
	store, err := state.Open(t.Context(), cfg.StateDir(), state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	finder, nvml := newFinder(cfg), nvidia.New(nvidia.Options{DriverRoot: cfg.DriverRoot})
	confiner, err := newConfiner(cfg, client, store, nvml, finder)
	if err != nil {
		t.Fatal(err)
	}
	return parts{
		client: client, devices: devices, preparer: preparer, confiner: confiner,
		proof: newProof(cfg, client, store, devices, nvml, finder, confiner, record.NewFakeRecorder(100)),
	}
}
