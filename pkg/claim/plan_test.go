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

package claim

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/pkg/gpu"
)

const (
	gib  = int64(1) << 30
	pool = "node-1"
	uuid = "GPU-00000000-0000-4000-8000-000000000000"
)

// node is the devices of a node in a map, by name.
type node map[string]gpu.Device

func (n node) Device(p, name string) (gpu.Device, bool) {
	d, ok := n[name]
	return d, ok && d.Pool == p
}

// profiles are of MIG partitions, by size.
var profiles = map[int]string{1: "1g.10gb", 2: "2g.20gb", 4: "3g.40gb", 8: "7g.80gb"}

// memorySlices is how many a GPU has.
const memorySlices = 8

// partition is the MIG device of a size that starts at a memory slice of GPU i.
func partition(i, size, start int) gpu.Device {
	profile := profiles[size]
	return gpu.Device{
		Pool: pool + "/gpu-" + fmt.Sprint(i), Name: fmt.Sprintf("mig-%d-%s-%d", i, profile, start), Form: gpu.MIG,
		GPU: &gpu.GPU{UUID: fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i)}, Memory: int64(size) * 10 * gib,
		Partition:       gpu.Partition{Profile: profile, Start: start, Size: size},
		MemoryIsolation: gpu.IsolationMIG, ComputeIsolation: gpu.IsolationMIG,
	}
}

// gpus is a node of n GPUs, each as a share device "slice-i", whole "gpu-i", and
// in every partition.
func gpus(n int, memory int64) node {
	devices := node{}
	for i := range n {
		for size := range profiles {
			for start := 0; start < memorySlices; start += size {
				d := partition(i, size, start)
				devices[d.Name] = d
			}
		}
		g := &gpu.GPU{UUID: fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i)}
		for name, form := range map[string]gpu.Form{"slice": gpu.Slice, "gpu": gpu.Whole} {
			name = fmt.Sprintf("%s-%d", name, i)
			devices[name] = gpu.Device{Pool: pool, Name: name, Form: form, GPU: g, Memory: memory,
				MemoryIsolation: gpu.IsolationNone, ComputeIsolation: gpu.IsolationNone}
		}
	}
	return devices
}

func capacity(memory string) map[resourceapi.QualifiedName]resource.Quantity {
	return map[resourceapi.QualifiedName]resource.Quantity{gpu.CapacityMemory: resource.MustParse(memory)}
}

// shareResult is a result for memory of the share device of GPU 0.
func shareResult(memory string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{
		Request: "gpu", Driver: gpu.DriverName, Pool: pool, Device: "slice-0",
		ShareID: ptr.To(types.UID("share-1")), ConsumedCapacity: capacity(memory),
	}
}

func with(r resourceapi.DeviceRequestAllocationResult, change func(*resourceapi.DeviceRequestAllocationResult)) resourceapi.DeviceRequestAllocationResult {
	change(&r)
	return r
}

func allocated(results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "uid-1"},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: results},
		}},
	}
}

func opaque(source resourceapi.AllocationConfigSource, driver, parameters string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{
		Source: source, Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(parameters)},
		}},
	}
}

type result = resourceapi.DeviceRequestAllocationResult

func TestFromClaimGrants(t *testing.T) {
	share := gpu.Grant{Request: "gpu", Pool: pool, Device: "slice-0", ShareID: "share-1", Form: gpu.Slice, UUID: uuid, Memory: 4 * gib, Isolation: gpu.IsolationNone}
	for name, tc := range map[string]struct {
		results []result
		want    []gpu.Grant
	}{
		"a share": {
			results: []result{shareResult("4Gi")},
			want:    []gpu.Grant{share},
		},
		"a share with compute": {
			results: []result{with(shareResult("4Gi"), func(r *result) { r.ConsumedCapacity[gpu.CapacityCompute] = resource.MustParse("25") })},
			want:    []gpu.Grant{func(g gpu.Grant) gpu.Grant { g.Compute = 25; return g }(share)},
		},
		"capacities of no concern": {
			results: []result{with(shareResult("4Gi"), func(r *result) { r.ConsumedCapacity["rank1"] = resource.MustParse("1") })},
			want:    []gpu.Grant{share},
		},
		"two requests on one GPU": {
			results: []result{shareResult("4Gi"), with(shareResult("8Gi"), func(r *result) { r.Request = "b/large"; r.ShareID = ptr.To(types.UID("share-2")) })},
			want:    []gpu.Grant{share, {Request: "b/large", Pool: pool, Device: "slice-0", ShareID: "share-2", Form: gpu.Slice, UUID: uuid, Memory: 8 * gib, Isolation: gpu.IsolationNone}},
		},
		"the whole GPU has all its memory": {
			results: []result{{Request: "gpu", Driver: gpu.DriverName, Pool: pool, Device: "gpu-0"}},
			want:    []gpu.Grant{{Request: "gpu", Pool: pool, Device: "gpu-0", Form: gpu.Whole, UUID: uuid, Memory: 80 * gib, Isolation: gpu.IsolationNone}},
		},
		"a partition has the memory of its profile": {
			results: []result{{Request: "gpu", Driver: gpu.DriverName, Pool: pool + "/gpu-0", Device: "mig-0-2g.20gb-4"}},
			want: []gpu.Grant{{Request: "gpu", Pool: pool + "/gpu-0", Device: "mig-0-2g.20gb-4", Form: gpu.MIG, UUID: uuid, Memory: 20 * gib, Isolation: gpu.IsolationMIG,
				Partition: gpu.Partition{Profile: "2g.20gb", Start: 4, Size: 2}}},
		},
		"admin access to a partition, which has to be found": {
			results: []result{{Request: "gpu", Driver: gpu.DriverName, Pool: pool + "/gpu-0", Device: "mig-0-2g.20gb-4", AdminAccess: ptr.To(true)}},
			want: []gpu.Grant{{Request: "gpu", Pool: pool + "/gpu-0", Device: "mig-0-2g.20gb-4", Form: gpu.MIG, UUID: uuid, Isolation: gpu.IsolationNone, AdminAccess: true,
				Partition: gpu.Partition{Profile: "2g.20gb", Start: 4, Size: 2}}},
		},
		"admin access consumes nothing": {
			results: []result{with(shareResult("80Gi"), func(r *result) { r.AdminAccess = ptr.To(true) })},
			want:    []gpu.Grant{{Request: "gpu", Pool: pool, Device: "slice-0", ShareID: "share-1", Form: gpu.Slice, UUID: uuid, Isolation: gpu.IsolationNone, AdminAccess: true}},
		},
		"results of other drivers are left alone": {
			results: []result{{Request: "nic", Driver: "nic.example.com", Pool: "nics", Device: "eth1"}, shareResult("4Gi")},
			want:    []gpu.Grant{share},
		},
		"only other drivers": {
			results: []result{{Request: "nic", Driver: "nic.example.com", Pool: pool, Device: "slice-0"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := FromClaim(allocated(tc.results...), gpus(1, 80*gib))
			if err != nil {
				t.Fatal(err)
			}
			want := Plan{UID: "uid-1", Namespace: "ns", Name: "claim", Grants: tc.want}
			if diff := cmp.Diff(want, plan); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFromClaimOfWithheldDevice is a claim that tolerates the taint, or was
// allocated before it was there.
func TestFromClaimOfWithheldDevice(t *testing.T) {
	devices := gpus(1, 80*gib)
	device := devices["mig-0-1g.10gb-3"]
	device.Withheld, device.Existing = gpu.Occupied, "MIG-1"
	devices[device.Name] = device
	plan, err := FromClaim(allocated(result{Request: "gpu", Driver: gpu.DriverName, Pool: device.Pool, Device: device.Name}), devices)
	if err != nil || len(plan.Grants) != 1 || plan.Grants[0].Existing != "MIG-1" {
		t.Errorf("plan %v, error %v; want the device, and its instance", plan, err)
	}
}

// TestFromClaimExactMemory has the notations of quantities that have been read
// wrongly elsewhere, and values that 32 bits or a float64 do not hold.
func TestFromClaimExactMemory(t *testing.T) {
	for memory, want := range map[string]int64{
		"16Gi":                16 << 30,
		"0.5Gi":               1 << 29,
		"1.5Gi":               3 << 29,
		"4G":                  4_000_000_000,
		"1e9":                 1_000_000_000,
		"4096Mi":              4 << 30,
		"2000Mi":              2000 << 20,
		"5000000000":          5_000_000_000,
		"4294967296":          1 << 32,
		"4503599627370497":    4503599627370497,
		"9007199254740993":    9007199254740993,
		"9223372036854775807": math.MaxInt64,
		"100m":                1,
		"1500m":               2,
		"1073741824.5":        1<<30 + 1,
	} {
		t.Run(memory, func(t *testing.T) {
			plan, err := FromClaim(allocated(shareResult(memory)), gpus(1, 80*gib))
			if err != nil {
				t.Fatal(err)
			}
			if got := plan.Grants[0].Memory; got != want {
				t.Errorf("got %d bytes, want %d", got, want)
			}
		})
	}
}

func TestFromClaimRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		claim *resourceapi.ResourceClaim
		want  []string
	}{
		"not allocated": {
			claim: &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "u"}},
			want:  []string{"claim ns/claim", "not allocated"},
		},
		"a UID that leaves the directory": {
			claim: func() *resourceapi.ResourceClaim { c := allocated(shareResult("4Gi")); c.UID = "../../etc/x"; return c }(),
			want:  []string{"claim ns/claim", `"../../etc/x"`},
		},
		"a device that this node lacks": {
			claim: allocated(with(shareResult("4Gi"), func(r *result) { r.Device = "slice-7" })),
			want:  []string{"claim ns/claim", `request "gpu"`, `"slice-7"`, `"node-1"`, "nvidia-smi -L"},
		},
		"a device of another node's pool": {
			claim: allocated(with(shareResult("4Gi"), func(r *result) { r.Pool = "node-2" })),
			want:  []string{`"slice-0"`, `"node-2"`},
		},
		"a share without its ID": {
			claim: allocated(with(shareResult("4Gi"), func(r *result) { r.ShareID = nil })),
			want:  []string{`request "gpu"`, "shareID", "ConsumableCapacity"},
		},
		"a share of unknown size": {
			claim: allocated(with(shareResult("4Gi"), func(r *result) { r.ConsumedCapacity = nil })),
			want:  []string{`request "gpu"`, `no "memory"`, "delete the pod"},
		},
		"a share of nothing":     {claim: allocated(shareResult("0")), want: []string{`["memory"]`, "is 0"}},
		"a negative share":       {claim: allocated(shareResult("-4Gi")), want: []string{`["memory"]`, "-4Gi"}},
		"a share beyond 64 bits": {claim: allocated(shareResult("16E")), want: []string{`["memory"]`, "16E"}},
		"compute above all of it": {
			claim: allocated(with(shareResult("4Gi"), func(r *result) { r.ConsumedCapacity["compute"] = resource.MustParse("101") })),
			want:  []string{`["compute"]`, "101", "100"},
		},
		"negative compute": {
			claim: allocated(with(shareResult("4Gi"), func(r *result) { r.ConsumedCapacity["compute"] = resource.MustParse("-1") })),
			want:  []string{`["compute"]`, "-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := FromClaim(tc.claim, gpus(1, 80*gib))
			if err == nil {
				t.Fatalf("no error, but the plan %v", plan)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestValidateUID(t *testing.T) {
	for uid, ok := range map[types.UID]bool{
		"8a1f0d3e-5b1c-4c0e-9a57-0f5b0c3d2e1a": true,
		"a":                                    true,
		"":                                     false,
		".":                                    false,
		"..":                                   false,
		"a/b":                                  false,
		"../x":                                 false,
		"a.json":                               false,
		"-a":                                   false,
		"a-":                                   false,
		"a\x00b":                               false,
		"a\n":                                  false,
		"ä":                                    false,
		types.UID(strings.Repeat("a", 64)):     true,
		types.UID(strings.Repeat("a", 65)):     false,
	} {
		if err := ValidateUID(uid); (err == nil) != ok {
			t.Errorf("UID %q: %v", uid, err)
		}
	}
}

func TestInUse(t *testing.T) {
	other := allocated(result{Driver: "nic.example.com", Pool: pool})
	in := func(pool string) *resourceapi.ResourceClaim {
		return allocated(with(shareResult("4Gi"), func(r *result) { r.Pool = pool }))
	}
	for name, tc := range map[string]struct {
		claim *resourceapi.ResourceClaim
		uid   types.UID
		want  bool
	}{
		"allocated":                 {allocated(shareResult("4Gi")), "uid-1", true},
		"made anew by that name":    {allocated(shareResult("4Gi")), "uid-0", false},
		"no longer allocated":       {&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: "uid-1"}}, "uid-1", false},
		"nothing of this driver":    {other, "uid-1", false},
		"in the pool of a GPU":      {in(pool + "/gpu-1f5e9c0a-77b2"), "uid-1", true},
		"on another node by now":    {in("node-2"), "uid-1", false},
		"on a GPU of that node":     {in("node-2/gpu-1f5e9c0a-77b2"), "uid-1", false},
		"on one with a longer name": {in(pool + "1"), "uid-1", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := InUse(tc.claim, tc.uid, pool); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
