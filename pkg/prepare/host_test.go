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

package prepare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/memslice/memslice/pkg/cdi"
	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/state"
	"github.com/memslice/memslice/pkg/state/statetest"
)

const gib = int64(1) << 30

// host is a node with GPUs of 80Gi, an API server, and disks.
type host struct {
	t      testing.TB
	claims string // state directory
	cdi    string
	boot   int

	mu       sync.Mutex
	api      map[types.UID]bool // claims that are in use
	apiErr   error
	driver   error // of the source of CDI edits
	hardware hardware

	faults *statetest.Faults // of the next plugin
}

func newHost(t testing.TB) *host {
	dir := t.TempDir()
	return &host{t: t, claims: filepath.Join(dir, "claims"), cdi: filepath.Join(dir, "cdi"), boot: 1,
		api: map[types.UID]bool{}, hardware: hardware{inMIGMode: map[string]bool{}, beside: map[string][]string{}}, faults: &statetest.Faults{}}
}

// context logs to the test what an administrator would see.
func (h *host) context() context.Context {
	return klog.NewContext(h.t.Context(), ktesting.NewLogger(h.t, ktesting.NewConfig(ktesting.Verbosity(1))))
}

// Device implements claim.Devices: gpu-N, slice-N, and mig-N-<size>-<start>.
func (h *host) Device(pool, name string) (gpu.Device, bool) {
	g := grant(name, 0)
	return gpu.Device{Pool: pool, Name: name, Form: g.Form, GPU: &gpu.GPU{UUID: g.UUID, ProductName: "H100"}, Memory: 80 * gib,
		Partition: g.Partition, MIGOnDemand: true}, !strings.HasSuffix(g.UUID, lostGPU)
}

// lostGPU is the number of a GPU that this node had once.
const lostGPU = "9"

// Spec implements cdi.Source.
func (h *host) Spec(_ context.Context, assignments []gpu.Assignment) (*specs.Spec, error) {
	spec := &specs.Spec{}
	for _, a := range assignments {
		uuid := cmp.Or(a.Instance.UUID, a.UUID)
		spec.Devices = append(spec.Devices, specs.Device{Name: uuid, ContainerEdits: specs.ContainerEdits{
			DeviceNodes: []*specs.DeviceNode{{Path: "/dev/" + uuid}}}})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return spec, h.driver
}

func (h *host) inUse(_ context.Context, _, _ string, uid types.UID) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.api[uid], h.apiErr
}

// plugin is a new instance of what is under test.
func (h *host) plugin() *Preparer {
	h.t.Helper()
	p, _ := h.pluginWithDisk()
	return p
}

func (h *host) pluginWithDisk() (*Preparer, *statetest.Disk) {
	h.t.Helper()
	disk := &statetest.Disk{Faults: h.faults}
	store, err := state.Open(h.context(), h.claims, state.Options{FS: disk})
	if err != nil {
		h.t.Fatal(err)
	}
	files, err := cdi.New(h.cdi, h, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return New(Config{
		Store: store, Specs: faultySpecs{files, h.faults}, Partitions: partitions{h, h.faults}, Devices: h, InUse: h.inUse,
		BootID: fmt.Sprint("boot-", h.boot),
		Attributes: func(d gpu.Device) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
			return map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"productName": {StringValue: &d.GPU.ProductName}, "uuid": {StringValue: ptr.To("of what is published")},
			}
		},
	}), disk
}

// reboot loses what is on tmpfs and on the GPUs, and whatever runs.
func (h *host) reboot() {
	h.t.Helper()
	h.boot++
	h.hardware.instances = nil
	if err := os.RemoveAll(h.cdi); err != nil {
		h.t.Fatal(err)
	}
}

// faultySpecs fails as a part of the machine that the disk is in.
type faultySpecs struct {
	*cdi.Specs
	faults *statetest.Faults
}

func (s faultySpecs) Write(ctx context.Context, uid types.UID, assignments []gpu.Assignment) (ids []string, err error) {
	err = s.faults.Do(func() (err error) { ids, err = s.Specs.Write(ctx, uid, assignments); return err }, nil)
	return ids, err
}

func (s faultySpecs) Remove(uid types.UID) error {
	return s.faults.Do(func() error { return s.Specs.Remove(uid) }, nil)
}

// ended is how a report names the claims that plan made.
func ended(uids ...types.UID) []kubeletplugin.NamespacedObject {
	var claims []kubeletplugin.NamespacedObject
	for _, uid := range uids {
		claims = append(claims, kubeletplugin.NamespacedObject{
			NamespacedName: types.NamespacedName{Namespace: "ns", Name: "claim-" + string(uid)}, UID: uid,
		})
	}
	return claims
}

// plan is that of the claim of that UID, which is in use from now on.
func (h *host) plan(uid types.UID, grants ...gpu.Grant) claim.Plan {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.api[uid] = true
	return claim.Plan{UID: uid, Namespace: "ns", Name: "claim-" + string(uid), Grants: grants}
}

func (h *host) setInUse(uid types.UID, inUse bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.api[uid] = inUse
}

// grant is of the request "r" on the device "gpu-N", "slice-N", or
// "mig-N-<size>-<start>".
func grant(device string, memory int64) gpu.Grant {
	parts := strings.SplitN(device, "-", 3)
	g := gpu.Grant{Request: "r", Pool: "node", Device: device, Form: gpu.Form(parts[0]), UUID: "GPU-" + parts[1], Memory: memory}
	switch g.Form {
	case gpu.Slice:
		g.ShareID = "share-of-" + parts[1]
	case gpu.MIG:
		g.Partition = partitionOf(device)
	}
	return g
}

// records is those on the disk.
func (h *host) records() (records []state.Record) {
	h.t.Helper()
	store, err := state.Open(h.context(), h.claims, state.Options{FS: &statetest.Disk{Faults: &statetest.Faults{}}})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := store.Do(h.t.Context(), func(tx *state.Tx) error {
		records = tx.All()
		if aside := tx.SetAside(); len(aside) > 0 {
			h.t.Errorf("set aside: %v", aside)
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	return records
}

// left is the claims that have a record, or a CDI spec, on the disk.
func (h *host) left() (records, files []types.UID) {
	h.t.Helper()
	return uidsOf(h.records()), h.specified()
}

func uidsOf(records []state.Record) (uids []types.UID) {
	for _, r := range records {
		uids = append(uids, r.UID)
	}
	return uids
}

// specified is the claims that have a CDI spec.
func (h *host) specified() (uids []types.UID) {
	h.t.Helper()
	entries, err := os.ReadDir(h.cdi)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	for _, e := range entries {
		name := strings.TrimSuffix(strings.TrimPrefix(e.Name(), "gpu.memslice.dev-claim_"), ".json")
		uids = append(uids, types.UID(name))
	}
	return uids
}

// want checks that exactly these claims are on the host, with all they have.
func (h *host) want(where string, uids ...types.UID) {
	h.t.Helper()
	records, files := h.records(), h.specified()
	if !slices.Equal(uidsOf(records), uids) || !slices.Equal(files, uids) {
		h.t.Errorf("%s: records of %q and CDI specs of %q, want both of %q", where, uidsOf(records), files, uids)
	}
	var grants []gpu.Grant
	for _, r := range records {
		grants = append(grants, r.Grants...)
	}
	h.wantInstances(where, grants)
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
