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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"             //nolint:depguard // nvcdi is tested with a mock of NVML
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server" //nolint:depguard // nvcdi is tested with a mock of NVML
	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"k8s.io/utils/ptr"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/memslice/memslice/pkg/gpu"
)

// migMinors is what the driver writes, of which the last two lines are nonsense.
// The first minor number of GPU n's instances is 100n; each has 9.
func migMinors() string {
	var text strings.Builder
	text.WriteString("config 1\nmonitor 2\n")
	for g := range 2 {
		for gi := range 8 {
			fmt.Fprintf(&text, "gpu%d/gi%d/access %d\n", g, gi, 100*g+9*gi+3)
			for ci := range 8 {
				fmt.Fprintf(&text, "gpu%d/gi%d/ci%d/access %d\n", g, gi, ci, 100*g+9*gi+4+ci)
			}
		}
	}
	return text.String() + "gpu1/gi7/access 77\nhello\n"
}

// migRoot is a driver root with GPUs in MIG mode, and with the device nodes of
// capabilities that are given.
func migRoot(t testing.TB, capabilities ...string) (string, *server.Server) {
	t.Helper()
	root, lib := driverRoot(t), mockNVML()
	addNodes(t, root, allNodes...)
	addNodes(t, root, capabilities...)
	for _, d := range lib.Devices {
		d.(*server.Device).MigMode = nvml.DEVICE_MIG_ENABLE
	}
	procfs(t, root, migMinors(), "Character devices:\n195 nvidia\n507 nvidia-caps-imex-channels\n508 nvidia-caps\n\nBlock devices:\n  8 sd\n")
	return root, lib
}

// procfs writes what is in it of the driver; an empty file is not there.
func procfs(t testing.TB, root, minors, majors string) {
	t.Helper()
	for file, text := range map[string]string{minorsFile: minors, majorsFile: majors} {
		path := filepath.Join(root, "proc", file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path)); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNVIDIAInstancesGolden has two instances of one GPU in MIG mode, and one of
// another whose device nodes are not on the host.
func TestNVIDIAInstancesGolden(t *testing.T) {
	root, lib := migRoot(t, "nvidia-caps/nvidia-cap48", "nvidia-caps/nvidia-cap49", "nvidia-caps/nvidia-cap66", "nvidia-caps/nvidia-cap67")
	assignments := assign(mig("a", uuidOf(0), 10<<30, 4), mig("a", uuidOf(0), 10<<30, 6), mig("b", uuidOf(1), 10<<30, 0))
	source, err := newNVIDIA(t, lib, root, "/run/nvidia/driver", "").Spec(testContext(t), assignments)
	if err != nil {
		t.Fatal(err)
	}
	spec, _, err := build(uid, assignments, source, hook)
	if err != nil {
		t.Fatal(err)
	}
	spec.ContainerEdits = specs.ContainerEdits{} // as in the other golden file
	checkSpec(t, "nvidia-instances.json", spec)
}

// TestNVIDIAInstancesInContainer is what a container runtime makes of a claim
// with two partitions of one GPU, wherever the driver is, and whether the host
// has the device nodes of their capabilities or not.
func TestNVIDIAInstancesInContainer(t *testing.T) {
	capabilities := []string{"nvidia-caps/nvidia-cap48", "nvidia-caps/nvidia-cap49", "nvidia-caps/nvidia-cap66", "nvidia-caps/nvidia-cap67"}
	for name, tc := range map[string]struct {
		onHost []string
		major  int64 // of a capability; addNodes gives all nodes the driver's
	}{
		"nodes on the host":    {capabilities, 195},
		"no nodes on the host": {nil, 508},
	} {
		t.Run(name, func(t *testing.T) {
			root, lib := migRoot(t, tc.onHost...)
			dir := t.TempDir()
			s, err := New(dir, newNVIDIA(t, lib, root, root, ""), hook)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := s.Write(testContext(t), uid, assign(mig("a", uuidOf(0), 10<<30, 4), mig("b", uuidOf(0), 10<<30, 6)))
			if err != nil {
				t.Fatal(err)
			}
			cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
			if err != nil {
				t.Fatal(err)
			}
			var container oci.Spec
			if _, err := cache.InjectDevices(&container, ids...); err != nil {
				t.Fatal(err)
			}
			got := map[string]oci.LinuxDevice{}
			for _, d := range container.Linux.Devices {
				got[d.Path] = d
			}
			if _, ok := got["/dev/nvidia0"]; !ok || got["/dev/nvidia1"].Path != "" {
				t.Errorf("device nodes %v, want those of GPU 0", got)
			}
			for _, c := range capabilities {
				d := got["/dev/"+c]
				if d.Type != "c" || d.Major != tc.major || ptr.Deref(d.FileMode, 0) != 0o444 {
					t.Errorf("node of %s: %+v, want it with the major number %d, for reading", c, d, tc.major)
				}
				if tc.onHost == nil && fmt.Sprint("nvidia-caps/nvidia-cap", d.Minor) != c {
					t.Errorf("node of %s has the minor number %d", c, d.Minor)
				}
				rule := oci.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &d.Major, Minor: &d.Minor, Access: "rw"}
				found := false
				for _, r := range container.Linux.Resources.Devices {
					found = found || cmp.Equal(rule, r)
				}
				if !found {
					t.Errorf("the cgroup does not allow %s: %+v", c, container.Linux.Resources.Devices)
				}
			}
		})
	}
}

// TestNVIDIAInstanceRoots has the ways in which hosts have the driver and its
// device nodes.
func TestNVIDIAInstanceRoots(t *testing.T) {
	capabilities := []string{"nvidia-caps/nvidia-cap48", "nvidia-caps/nvidia-cap49"}
	for name, tc := range map[string]struct {
		hostRoot    string
		nodesInRoot bool
		want        string
	}{
		"driver on the host":                  {"/", true, "/dev/nvidia-caps/nvidia-cap48"},
		"driver in a container":               {"/run/nvidia/driver", true, "/run/nvidia/driver/dev/nvidia-caps/nvidia-cap48"},
		"driver elsewhere, nodes on the host": {"/home/kubernetes/bin/nvidia", false, "/dev/nvidia-caps/nvidia-cap48"},
	} {
		t.Run(name, func(t *testing.T) {
			root, host := driverRoot(t), t.TempDir()
			procfs(t, root, migMinors(), "")
			nodes := host
			if tc.nodesInRoot {
				nodes = root
			}
			addNodes(t, nodes, append(capabilities, allNodes...)...)
			spec, err := newNVIDIA(t, mockNVML(), root, tc.hostRoot, host).Spec(testContext(t), assign(mig("a", uuidOf(0), 1, 4)))
			if err != nil {
				t.Fatal(err)
			}
			instance := spec.Devices[len(spec.Devices)-1]
			if got := instance.ContainerEdits.DeviceNodes; instance.Name != "MIG-"+uuidOf(0)+"-4" || len(got) != 3 || got[1].HostPath != tc.want || got[1].Path != "/dev/nvidia-caps/nvidia-cap48" {
				t.Errorf("device %s with nodes %+v, want one from %s", instance.Name, got, tc.want)
			}
		})
	}
}

// TestNVIDIAInstanceMissingNodes shows that device nodes which a container
// cannot have are named, with the way to them, and that nothing of the failure
// is kept.
func TestNVIDIAInstanceMissingNodes(t *testing.T) {
	root, lib := migRoot(t)
	procfs(t, root, migMinors(), "195 nvidia\n")
	s, err := New(t.TempDir(), newNVIDIA(t, lib, root, "/run/nvidia/driver", ""), hook)
	if err != nil {
		t.Fatal(err)
	}
	assignments := assign(mig("a", uuidOf(0), 1, 4))
	_, err = s.Write(testContext(t), uid, assignments)
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{uuidOf(0), "MIG-" + uuidOf(0) + "-4",
		"/run/nvidia/driver/dev/nvidia-caps/nvidia-cap48, /run/nvidia/driver/dev/nvidia-caps/nvidia-cap49",
		filepath.Join(root, "proc/devices") + `: it has no line for "nvidia-caps"`,
		`"nvidia-modprobe -f /proc/driver/nvidia/capabilities/gpu0/mig/gi5/access -f /proc/driver/nvidia/capabilities/gpu0/mig/gi5/ci0/access"`,
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if exists, _ := s.Exists(uid); exists {
		t.Error("there is a spec")
	}
	addNodes(t, root, "nvidia-caps/nvidia-cap48", "nvidia-caps/nvidia-cap49")
	if _, err := s.Write(testContext(t), uid, assignments); err != nil {
		t.Errorf("with the nodes: %v", err)
	}
}

func TestNVIDIAInstanceRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		minors string
		want   []string
	}{
		"no list of capabilities":         {"", []string{minorsFile, "check that the driver is loaded", "--proc-root"}},
		"no line of the instance":         {"gpu0/gi5/ci0/access 4\n", []string{`no line for "gpu0/gi5/access"`, minorsFile}},
		"no line of the compute instance": {"gpu0/gi5/access 4\ngpu0/gi5/ci1/access 5\ngpu1/gi5/ci0/access 6", []string{`no line for "gpu0/gi5/ci0/access"`}},
		"no number":                       {"gpu0/gi5/access four\n", []string{`the line of "gpu0/gi5/access"`, `"four"`}},
		"an impossible one":               {"gpu0/gi5/access 1048576\n", []string{`the line of "gpu0/gi5/access"`, "out of range"}},
		"a file without end":              {strings.Repeat("gpu0/gi5/access 4\n", 100000), []string{"more than 1048576 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, lib := migRoot(t)
			procfs(t, root, tc.minors, "508 nvidia-caps\n")
			_, err := newNVIDIA(t, lib, root, "/", "").Spec(testContext(t), assign(mig("a", uuidOf(0), 1, 4)))
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range append(tc.want, "GPU "+uuidOf(0)+", MIG instance MIG-"+uuidOf(0)+"-4") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

// TestOnlyNode: what nvcdi adds to a GPU for graphics is no business of those
// who have a part of it.
func TestOnlyNode(t *testing.T) {
	video, render := uint32(44), uint32(104)
	node := specs.DeviceNode{Path: "/dev/nvidia0", HostPath: "/driver/dev/nvidia0", GID: &video, Permissions: "rwm"}
	edits := specs.ContainerEdits{
		Env: []string{"GRAPHICS=1"},
		DeviceNodes: []*specs.DeviceNode{
			{Path: "/dev/dri/card1", GID: &video}, &node, {Path: "/dev/dri/renderD128", GID: &render},
		},
		Hooks:          []*specs.Hook{{HookName: "createContainer", Path: "/hook", Args: []string{"hook", "create-symlinks"}}},
		Mounts:         []*specs.Mount{{HostPath: "/graphics", ContainerPath: "/graphics"}},
		AdditionalGIDs: []uint32{render, video},
	}
	want := specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{&node}, AdditionalGIDs: []uint32{video}}
	got := onlyNode(edits, "/dev/nvidia0")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.DeviceNodes[0] == &node {
		t.Error("the node is shared with the GPU's own edits")
	}
	if got := onlyNode(specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidia0"}}, AdditionalGIDs: []uint32{render}}, "/dev/nvidia0"); got.AdditionalGIDs != nil {
		t.Errorf("groups %v for a node that everybody may open", got.AdditionalGIDs)
	}
}

// TestInstancesBesideOthers: a share of another GPU has all of its edits.
func TestInstancesBesideOthers(t *testing.T) {
	root, lib := migRoot(t)
	assignments := assign(slice("a", uuidOf(1), 1, 0), mig("b", uuidOf(0), 1, 4), gpu.Grant{Request: "c", Form: gpu.Whole, UUID: uuidOf(1)})
	source, err := newNVIDIA(t, lib, root, "/", "").Spec(testContext(t), assignments)
	if err != nil {
		t.Fatal(err)
	}
	spec, _, err := build(uid, assignments, source, hook)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"/dev/nvidia1"}, {"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap48", "/dev/nvidia-caps/nvidia-cap49"}, {"/dev/nvidia1"}} {
		var got []string
		for _, node := range spec.Devices[i].ContainerEdits.DeviceNodes {
			got = append(got, node.Path)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("device %d (-want +got):\n%s", i, diff)
		}
	}
}

// FuzzNumberBeside: what is found is written there.
func FuzzNumberBeside(f *testing.F) {
	f.Add("config 1\ngpu0/gi5/access 48\ngpu0/gi5/ci0/access 49\n", "gpu0/gi5/access", 0)
	f.Add("508 nvidia-caps\n", "nvidia-caps", 1)
	f.Add("a 1 2\na\t 0x10\r\na -1", "a", 0)
	f.Fuzz(func(t *testing.T, text, name string, column int) {
		column &= 1
		number, err := numberBeside(text, name, column)
		if err != nil {
			return
		}
		if number < 0 || number >= 1<<20 {
			t.Fatalf("%d is no number of a device node", number)
		}
		for line := range strings.Lines(text) {
			if words := strings.Fields(line); len(words) == 2 && words[column] == name && strings.TrimLeft(words[1-column], "0") == strings.TrimLeft(fmt.Sprint(number), "0") {
				return
			}
		}
		t.Errorf("no line has %q and %d", name, number)
	})
}
