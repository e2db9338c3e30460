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

package render

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/e2e/localcluster/internal/layout"
)

var update = flag.Bool("update", false, "write the golden files")

func example() (layout.Layout, Settings) {
	l := layout.New("/home/u/memslice/_output/cluster", "/run")
	return l, Settings{
		NodeName:      "localhost",
		FeatureGates:  "GenericWorkload=true",
		RuntimeConfig: "scheduling.k8s.io/v1beta1=true",
		Ports:         PortsFrom([]int{20000, 20001, 20002, 20003, 20004, 20005, 20006}),
		Tokens:        Tokens{Admin: "admin-token", ControllerManager: "manager-token", Scheduler: "scheduler-token", Kubelet: "kubelet-token"},
		Subnet:        7,
		Snapshotter:   "overlayfs",
	}
}

// golden compares with testdata/<name>.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestFiles(t *testing.T) {
	l, s := example()
	files, err := Files(l, s, Programs{Shim: "/bin/shim", Runc: "/bin/runc", CNI: "/bin/cni"}, []byte("CA"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 8 {
		t.Errorf("%d files", len(files))
	}
	for path, data := range files {
		rel, err := filepath.Rel(l.Dir, path)
		if err != nil || strings.HasPrefix(rel, "..") {
			// The pod network's configuration is named by the short name.
			rel, err = filepath.Rel(l.Short, path)
		}
		if err != nil || strings.HasPrefix(rel, "..") {
			t.Errorf("%s is outside of the cluster's folder", path)
			continue
		}
		golden(t, strings.ReplaceAll(rel, "/", "_"), string(data))
	}
}

func TestArguments(t *testing.T) {
	l, s := example()
	for name, args := range map[string][]string{
		"etcd":                    Etcd(l, s),
		"kube-apiserver":          APIServer(l, s),
		"kube-controller-manager": ControllerManager(l, s),
		"kube-scheduler":          Scheduler(l, s),
		"kubelet":                 Kubelet(l, s),
		"containerd":              Containerd(l),
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, name+".args", strings.Join(args, "\n")+"\n")
		})
	}
}

// A setting that was not made leaves the component's own default.
func TestDefaultsAreNotRepeated(t *testing.T) {
	l, s := example()
	s.FeatureGates, s.RuntimeConfig = "", ""
	for _, args := range [][]string{APIServer(l, s), ControllerManager(l, s), Scheduler(l, s), Kubelet(l, s)} {
		for _, arg := range args {
			if strings.HasPrefix(arg, "--feature-gates") || strings.HasPrefix(arg, "--runtime-config") {
				t.Errorf("%s without a setting", arg)
			}
		}
	}
}

// Nobody outside of the machine can reach the cluster.
func TestEverythingListensOnLoopback(t *testing.T) {
	l, s := example()
	for name, args := range map[string][]string{"etcd": Etcd(l, s), "apiserver": APIServer(l, s), "manager": ControllerManager(l, s), "scheduler": Scheduler(l, s)} {
		bound := false
		for _, arg := range args {
			flag, value, _ := strings.Cut(arg, "=")
			switch flag {
			case "--bind-address", "--listen-client-urls", "--listen-peer-urls":
				bound = true
				if !strings.Contains(value, "127.0.0.1") {
					t.Errorf("%s: %s", name, arg)
				}
			}
		}
		if !bound {
			t.Errorf("%s listens wherever its default is", name)
		}
	}
}
