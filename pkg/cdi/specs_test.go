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

package cdi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/memslice/memslice/pkg/golden"
	"github.com/memslice/memslice/pkg/gpu"
)

func checkSpec(t *testing.T, name string, spec *specs.Spec) {
	t.Helper()
	got, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", name)
	golden.Check(t, path, got)
}

// source has the edits of any GPU and MIG instance.
type source struct{ err error }

func (s source) Spec(_ context.Context, assignments []gpu.Assignment) (*specs.Spec, error) {
	spec := &specs.Spec{ContainerEdits: specs.ContainerEdits{
		Env:         []string{"NVIDIA_VISIBLE_DEVICES=void"},
		DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidiactl"}},
		Mounts:      []*specs.Mount{{HostPath: "/driver/lib/libcuda.so.1", ContainerPath: "/lib/libcuda.so.1"}},
	}}
	for _, a := range assignments {
		uuid := visibleUUID(a)
		spec.Devices = append(spec.Devices, specs.Device{Name: uuid, ContainerEdits: specs.ContainerEdits{
			Env:         []string{"FROM_SOURCE=" + uuid},
			DeviceNodes: []*specs.DeviceNode{{Path: "/dev/" + uuid}},
		}})
	}
	return spec, s.err
}

const uid = types.UID("8a1f0d3e-5b1c-4c0e-9a57-0f5b0c3d2e1a")

func slice(request, uuid string, memory, compute int64) gpu.Grant {
	return gpu.Grant{Request: request, Form: gpu.Slice, UUID: uuid, Memory: memory, Compute: compute}
}

// mig is the grant of an instance.
func mig(request, uuid string, memory int64, start int) gpu.Grant {
	return gpu.Grant{Request: request, Form: gpu.MIG, UUID: uuid, Memory: memory, Partition: gpu.Partition{Profile: "1g.10gb", Start: start, Size: 1}}
}

// assign is what grants come to: the instance at memory slice 4 of GPU-0 is
// MIG-GPU-0-4, with the numbers 5 and 0.
func assign(grants ...gpu.Grant) []gpu.Assignment {
	var assignments []gpu.Assignment
	for _, g := range grants {
		a := gpu.Assignment{Grant: g}
		if g.Form == gpu.MIG {
			a.Instance = gpu.Instance{UUID: fmt.Sprintf("MIG-%s-%d", g.UUID, g.Partition.Start), Partition: g.Partition, GPUInstance: g.Partition.Start + 1}
		}
		assignments = append(assignments, a)
	}
	return assignments
}

// held is a share that a cgroup is limited to.
func held(request, uuid string, memory int64) gpu.Grant {
	g := slice(request, uuid, memory, 0)
	g.Isolation = gpu.IsolationCgroup
	return g
}

func hook(claim types.UID, device int) specs.ContainerEdits {
	return specs.ContainerEdits{Hooks: []*specs.Hook{{HookName: "createRuntime", Path: "/hook", Args: []string{"/hook", string(claim), strconv.Itoa(device)}}}}
}

func TestBuild(t *testing.T) {
	admin := slice("look", "GPU-0", 0, 0)
	admin.AdminAccess = true
	lookAtMIG := mig("look", "GPU-0", 0, 4)
	lookAtMIG.AdminAccess = true
	for name, grants := range map[string][]gpu.Grant{
		"one-share":              {slice("gpu", "GPU-0", 4294967297, 0)},
		"one-share-with-compute": {slice("gpu", "GPU-0", 4<<30, 25)},
		"two-shares-of-one-gpu":  {slice("a", "GPU-0", 1<<30, 0), slice("b", "GPU-0", 2<<30, 0)},
		"count-of-two":           {slice("train-gpu", "GPU-1", 1<<30, 0), slice("train-gpu", "GPU-0", 2<<30, 30)},
		"sub-request":            {slice("gpu/large", "GPU-0", 1<<30, 0)},
		"whole":                  {{Request: "gpu", Form: gpu.Whole, UUID: "GPU-0", Memory: 80 << 30}},
		"admin-access":           {admin},
		"partition":              {mig("gpu", "GPU-0", 10<<30, 4)},
		"partitions-of-one-gpu":  {mig("a", "GPU-0", 10<<30, 4), mig("b", "GPU-0", 20<<30, 6)},
		"count-of-partitions":    {mig("a", "GPU-0", 10<<30, 4), mig("a", "GPU-1", 10<<30, 0)},
		"partition-and-share":    {mig("a/large", "GPU-0", 10<<30, 4), slice("b", "GPU-1", 1<<30, 25), lookAtMIG},
		"held-by-cgroup":         {slice("a", "GPU-0", 1<<30, 0), held("b", "GPU-0", 2<<30), held("c", "GPU-1", 3<<30)},
		"share-and-whole":        {slice("a", "GPU-0", 1<<30, 0), {Request: "b", Form: gpu.Whole, UUID: "GPU-1", Memory: 80 << 30}},
	} {
		t.Run(name, func(t *testing.T) {
			edits, err := source{}.Spec(t.Context(), assign(grants...))
			if err != nil {
				t.Fatal(err)
			}
			spec, ids, err := build(uid, assign(grants...), edits, hook)
			if err != nil {
				t.Fatal(err)
			}
			checkSpec(t, name+".json", spec)
			for i, id := range ids {
				if want := "gpu.memslice.dev/claim=" + spec.Devices[i].Name; id != want || len(ids) != len(grants) {
					t.Errorf("CDI device %q, want %q", id, want)
				}
			}
		})
	}
}

// TestBuildNames has request names that are the same once they are part of a
// name.
func TestBuildNames(t *testing.T) {
	assignments := assign(slice("a/b", "GPU-0", 1, 0), slice("a-b", "GPU-0", 1, 0), slice("a-b-1", "GPU-0", 1, 0), slice("a-b", "GPU-0", 1, 0))
	edits, err := source{}.Spec(t.Context(), assignments)
	if err != nil {
		t.Fatal(err)
	}
	_, ids, err := build(uid, assignments, edits, hook)
	if err != nil {
		t.Fatal(err)
	}
	sorted := slices.Sorted(slices.Values(ids))
	if got := slices.Compact(slices.Clone(sorted)); len(got) != 4 {
		t.Errorf("four grants have the CDI devices %q", ids)
	}
}

func TestSpecs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cdi")
	s, err := New(dir, source{}, hook)
	if err != nil {
		t.Fatal(err)
	}
	assignments := assign(slice("a", "GPU-0", 1<<30, 0), slice("b", "GPU-0", 2<<30, 0))
	exists := func(want bool) {
		t.Helper()
		if got, err := s.Exists(uid); err != nil || got != want {
			t.Errorf("Exists: %v, %v, want %v", got, err, want)
		}
	}
	exists(false)
	if orphans, err := s.Orphans(func(types.UID) bool { return false }); len(orphans) != 0 || err != nil {
		t.Errorf("without the directory: orphans %v, error %v", orphans, err)
	}
	ids, err := s.Write(testContext(t), uid, assignments)
	if err != nil {
		t.Fatal(err)
	}
	exists(true)

	// What a container runtime makes of it.
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	if errs := cache.GetErrors(); len(errs) != 0 {
		t.Errorf("the spec is not valid: %v", errs)
	}
	listed := cache.ListDevices()
	if diff := cmp.Diff(slices.Sorted(slices.Values(ids)), slices.Sorted(slices.Values(listed))); diff != "" {
		t.Errorf("CDI devices (-returned +listed):\n%s", diff)
	}

	again, err := s.Write(testContext(t), uid, assignments)
	if err != nil || !cmp.Equal(ids, again) {
		t.Errorf("written again: %v, %v; want %v", again, err, ids)
	}
	for range 2 {
		if err := s.Remove(uid); err != nil {
			t.Error(err)
		}
	}
	exists(false)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestSpecsKeepsTheOldOneOnFailure(t *testing.T) {
	dir := t.TempDir()
	s, err := New(dir, source{}, hook)
	if err != nil {
		t.Fatal(err)
	}
	assignments := assign(slice("a", "GPU-0", 1<<30, 0))
	if _, err := s.Write(testContext(t), uid, assignments); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(s.path(uid))
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no driver")
	s.source = source{err: broken}
	if _, err := s.Write(testContext(t), uid, assign(slice("b", "GPU-1", 1, 0))); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	after, err := os.ReadFile(s.path(uid))
	if err != nil || string(before) != string(after) {
		t.Errorf("the spec has changed: %v, %s", err, after)
	}
}

func TestSpecsRefusesUnsafeUID(t *testing.T) {
	parent := t.TempDir()
	victim := filepath.Join(parent, "x.json")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(filepath.Join(parent, "cdi"), source{}, hook)
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []types.UID{"/../../x", "../x", "", "a/b", "a.b"} {
		if _, err := s.Write(testContext(t), uid, assign(slice("a", "GPU-0", 1, 0))); err == nil {
			t.Errorf("Write of UID %q is accepted", uid)
		}
		if err := s.Remove(uid); err == nil {
			t.Errorf("Remove of UID %q is accepted", uid)
		}
		if _, err := s.Exists(uid); err == nil {
			t.Errorf("Exists of UID %q is accepted", uid)
		}
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error(err)
	}
}

// TestSpecsRefusesUnknownInstance: whoever has the GPU's device node without an
// instance's capabilities has no part of the GPU, or all of it.
func TestSpecsRefusesUnknownInstance(t *testing.T) {
	s, err := New(t.TempDir(), source{}, hook)
	if err != nil {
		t.Fatal(err)
	}
	assignments := assign(mig("gpu", "GPU-0", 10<<30, 4))
	assignments[0].Instance = gpu.Instance{}
	_, err = s.Write(testContext(t), uid, assignments)
	if err == nil || !strings.Contains(err.Error(), "1g.10gb at memory slice 4 of GPU GPU-0") {
		t.Errorf("error %v, want one that names the partition", err)
	}
	if exists, _ := s.Exists(uid); exists {
		t.Error("there is a spec")
	}
}

func TestOrphans(t *testing.T) {
	dir := t.TempDir()
	s, err := New(dir, source{}, hook)
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []types.UID{"known", "orphan-1", "orphan-2"} {
		if _, err := s.Write(testContext(t), uid, assign(slice("a", "GPU-0", 1, 0))); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"gpu.memslice.dev-claim_other.json":      `{"kind":"gpu.example.com/claim"}`,
		"gpu.memslice.dev-claim_cut.json":        `{"kind":"gpu.memslice.dev/claim"`,
		"gpu.memslice.dev-claim_yaml.yaml":       "kind: gpu.memslice.dev/claim",
		"gpu.memslice.dev-claim_.json":           `{"kind":"gpu.memslice.dev/claim"}`,
		"gpu.memslice.dev_metadata_x_gpu.json":   `{"kind":"gpu.memslice.dev/metadata"}`,
		"k8s.gpu.nvidia.com-claim_orphan-3.json": `{"kind":"gpu.memslice.dev/claim"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Orphans(func(uid types.UID) bool { return uid == "known" })
	if diff := cmp.Diff([]types.UID{"orphan-1", "orphan-2"}, got); diff != "" || err != nil {
		t.Errorf("error %v, orphans (-want +got):\n%s", err, diff)
	}
}

// TestWriteDoesNotReadOtherSpecs would fail on a spec of another driver that is
// damaged, and be slow where there are many.
func TestWriteDoesNotReadOtherSpecs(t *testing.T) {
	dir := t.TempDir()
	s, err := New(dir, source{}, hook)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other.json"), []byte(strings.Repeat("{", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(testContext(t), uid, assign(slice("a", "GPU-0", 1, 0))); err != nil {
		t.Error(err)
	}
	if errs := s.cache.GetErrors(); len(errs) != 0 {
		t.Errorf("the spec of another driver was read: %v", errs)
	}
}
