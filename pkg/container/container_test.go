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

package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	pod = "2b7f6f0e-9e52-4d46-a7f5-9b4d1c1b2a3c"
	id  = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// machine has process 7 in cgroups, and those of version 2 at root, or next to
// others, or nowhere.
func machine(t *testing.T, cgroups, version2 string) Finder {
	t.Helper()
	f := Finder{ProcRoot: t.TempDir(), CgroupRoot: t.TempDir()}
	for path, text := range map[string]string{filepath.Join(f.ProcRoot, "7", "cgroup"): cgroups, filepath.Join(f.ProcRoot, "7", "comm"): "py\x1bthon\n"} {
		write(t, path, text)
	}
	if version2 != "" {
		write(t, filepath.Join(f.CgroupRoot, version2, "cgroup.controllers"), "cpu")
	}
	return f
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	under := strings.ReplaceAll(pod, "-", "_")
	static := strings.Repeat("ab", 16)
	for name, tc := range map[string]struct {
		cgroup string
		pod    string
		at     string // of the pod's cgroup
		below  string // that, of the container's
	}{
		"cgroupfs, best effort":           {cgroup: "/kubepods/besteffort/pod" + pod + "/" + id, at: "/kubepods/besteffort/pod" + pod, below: id},
		"cgroupfs, guaranteed":            {cgroup: "/kubepods/pod" + pod + "/" + id, at: "/kubepods/pod" + pod, below: id},
		"cgroupfs, below another":         {cgroup: "/kubelet/x/kubepods/burstable/pod" + pod + "/" + id, at: "/kubelet/x/kubepods/burstable/pod" + pod, below: id},
		"cgroupfs, a cgroup of its own":   {cgroup: "/kubepods/pod" + pod + "/" + id + "/init/a", at: "/kubepods/pod" + pod, below: id},
		"cgroupfs, a static pod":          {cgroup: "/kubepods/pod" + static + "/" + id, pod: static, at: "/kubepods/pod" + static, below: id},
		"systemd, containerd":             {cgroup: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice/cri-containerd-" + id + ".scope", at: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice", below: "cri-containerd-" + id + ".scope"},
		"systemd, guaranteed, CRI-O":      {cgroup: "/kubepods.slice/kubepods-pod" + under + ".slice/crio-" + id + ".scope", at: "/kubepods.slice/kubepods-pod" + under + ".slice", below: "crio-" + id + ".scope"},
		"systemd, CRI-O, below its scope": {cgroup: "/kubepods.slice/kubepods-pod" + under + ".slice/crio-" + id + ".scope/container", at: "/kubepods.slice/kubepods-pod" + under + ".slice", below: "crio-" + id + ".scope"},
		"systemd, Docker":                 {cgroup: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice/docker-" + id + ".scope", at: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice", below: "docker-" + id + ".scope"},
		"systemd, below another":          {cgroup: "/kind.slice/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + under + ".slice/cri-containerd-" + id + ".scope", at: "/kind.slice/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + under + ".slice", below: "cri-containerd-" + id + ".scope"},
	} {
		for kind, version2 := range map[string]string{"v2": ".", "hybrid": "unified"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				lines := "0::" + tc.cgroup + "\n"
				if kind == "hybrid" {
					lines = "4:memory:/elsewhere\n1:name=systemd:/\n" + lines
				}
				f := machine(t, lines, version2)
				got, err := f.Find(7)
				if err != nil {
					t.Fatal(err)
				}
				uid := tc.pod
				if uid == "" {
					uid = pod
				}
				at := filepath.Join(f.CgroupRoot, version2, tc.at)
				if want := (Container{Pod: uid, ID: id, PodCgroup: at, Cgroup: filepath.Join(at, tc.below)}); got != want {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
				if own, err := f.Cgroup(7); err != nil || own != filepath.Join(f.CgroupRoot, version2, tc.cgroup) {
					t.Errorf("its own cgroup is %s, %v", own, err)
				}
			})
		}
	}
}

func TestFindRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		cgroups, version2 string
		is                error
		says              string
	}{
		"a process of the host":           {cgroups: "0::/system.slice/containerd.service\n", version2: ".", is: ErrNotContainer},
		"the pod's own cgroup":            {cgroups: "0::/kubepods/pod" + pod + "\n", version2: ".", is: ErrNotContainer},
		"a pod's name that is none":       {cgroups: "0::/kubepods/pod../" + id + "\n", version2: ".", is: ErrNotContainer},
		"a container's name that is none": {cgroups: "0::/kubepods/pod" + pod + "/init\n", version2: ".", is: ErrNotContainer},
		"the root":                        {cgroups: "0::/\n", version2: ".", is: ErrNotContainer},
		"another namespace of cgroups":    {cgroups: "0::/../../kubepods/pod" + pod + "/" + id + "\n", version2: ".", says: "cgroup namespace"},
		"a name that leads elsewhere":     {cgroups: "0::/kubepods/../../pod" + pod + "/" + id + "\n", version2: ".", says: "no name of a cgroup"},
		"a relative name":                 {cgroups: "0::kubepods/pod" + pod + "/" + id + "\n", version2: ".", says: "no name of a cgroup"},
		"version 1 only":                  {cgroups: "4:memory:/kubepods/pod" + pod + "/" + id + "\n", version2: ".", says: "none of cgroup v2"},
		"nothing":                         {version2: ".", says: "none of cgroup v2"},
		"a machine with version 1 only":   {cgroups: "4:memory:/kubepods/pod" + pod + "/" + id + "\n", says: "boot the node with cgroup v2"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := machine(t, tc.cgroups, tc.version2).Find(7)
			if err == nil || tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %+v, %v", got, err)
			}
			if tc.is == nil && errors.Is(err, ErrNotContainer) {
				t.Errorf("it is taken for a process of the host: %v", err)
			}
		})
	}
	if _, err := machine(t, "", ".").Find(8); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that has ended: %v", err)
	}
}

func TestCommand(t *testing.T) {
	f := machine(t, "", ".")
	if name, err := f.Command(7); err != nil || name != "py?thon" {
		t.Errorf("got %q, %v", name, err)
	}
	if _, err := f.Command(8); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that has ended: %v", err)
	}
}

func TestExists(t *testing.T) {
	f := machine(t, "", ".")
	file := filepath.Join(f.CgroupRoot, "cgroup.controllers")
	for path, want := range map[string]bool{f.CgroupRoot: true, file: false, filepath.Join(f.CgroupRoot, "gone"): false} {
		if got := f.Exists(path); got != want {
			t.Errorf("%s: got %t", path, got)
		}
	}
}

// Whatever the kernel says, what is found lies below the root and is a pod's.
func FuzzFind(f *testing.F) {
	for _, line := range []string{
		"0::/kubepods/pod" + pod + "/" + id, "0::/../kubepods/pod" + pod + "/" + id, "0::/", "12:devices:/a\n0::/b",
		fmt.Sprintf("0::/kubepods.slice/kubepods-pod%s.slice/crio-%s.scope", strings.ReplaceAll(pod, "-", "_"), id),
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		name, err := unifiedName([]byte(lines))
		if err != nil {
			return
		}
		c, ok := parse(name)
		if !ok {
			return
		}
		if uid(filepath.Base(c.PodCgroup)) != c.Pod || c.Pod == "" || len(c.ID) != 64 || filepath.Dir(c.Cgroup) != c.PodCgroup || strings.Contains(c.Cgroup, "..") {
			t.Errorf("%q became %+v", lines, c)
		}
	})
}
