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

package layout

import (
	"path/filepath"
	"strings"
	"testing"
)

// A unix socket's path, with the zero byte that ends it, has 108 bytes.
func TestRegistrationSocketFits(t *testing.T) {
	long := "/" + strings.Repeat("long/", 60) + "_output/cluster"
	l := New(long, "/run")
	socket := filepath.Join(l.KubeletRoot(), "plugins_registry", "gpu.memslice.dev-"+strings.Repeat("u", 36)+"-reg.sock")
	if len(socket) > 107 {
		t.Errorf("%s has %d bytes", socket, len(socket))
	}
	for _, path := range []string{l.ContainerdSocket(), l.CDI(), l.PodLogs(), l.Namespace(), l.CNIConf(), l.Shadow("cni")} {
		if !strings.HasPrefix(path, l.Short+"/") {
			t.Errorf("%s is not below the short name %s", path, l.Short)
		}
	}
}

func TestClustersAreApart(t *testing.T) {
	a, b := New("/home/a/_output/cluster", "/run"), New("/home/b/_output/cluster", "/run")
	if a.Short == b.Short || a.CgroupRoot() == b.CgroupRoot() {
		t.Errorf("two folders share %s or %s", a.Short, a.CgroupRoot())
	}
	if again := New(a.Dir, "/run"); again != a {
		t.Errorf("one folder has two layouts: %v, %v", a, again)
	}
}

// What is written below the folder is what down removes.
func TestEntriesCoverThePaths(t *testing.T) {
	l := New("/c", "/s")
	entries := map[string]bool{}
	for _, entry := range Entries() {
		entries[entry] = true
	}
	for _, path := range []string{
		l.State(), l.Kubeconfig(), l.LogDir(), l.Log("x"), l.PID("x"), l.Conf("x"), l.PKI("x"), l.EtcdData(),
		l.KubeletRoot(), l.PodLogs(), l.CDI(), l.ContainerdRoot(), l.Run(), l.ContainerdSocket(), l.CNIConf(), l.Namespace(), l.Shadow("x"),
	} {
		rel := strings.TrimPrefix(strings.TrimPrefix(path, l.Dir+"/"), l.Short+"/")
		if first, _, _ := strings.Cut(rel, "/"); !entries[first] {
			t.Errorf("%s would be left", path)
		}
	}
}
