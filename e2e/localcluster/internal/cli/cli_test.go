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

package cli

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/memslice/memslice/e2e/localcluster/internal/cluster"
	"github.com/memslice/memslice/e2e/localcluster/internal/image"
	"github.com/memslice/memslice/e2e/localcluster/internal/state"
)

var update = flag.Bool("update", false, "write the golden files")

func example() cluster.Status {
	return cluster.Status{
		Problem: "kubelet does not run", Dir: "/o'brien/cluster", KubernetesVersion: "1.37.2", Kubeconfig: "/o'brien/cluster/kubeconfig",
		APIServerHost: "127.0.0.1", APIServerPort: 20000, Node: state.Real, NodeName: "localhost",
		KubeletRootDir: "/run/memslice-12345678/node", CDIDir: "/run/memslice-12345678/cdi",
		ContainerdSocket: "/run/memslice-12345678/run/containerd.sock", LogDir: "/o'brien/cluster/log",
		MountNamespace: "/run/memslice-12345678/mntns", CgroupRoot: "/memslice-12345678",
		Components: []cluster.ComponentStatus{
			{Name: "etcd", PID: 7, Ready: true, Log: "/o'brien/cluster/log/etcd.log"},
			{Name: "kubelet", Problem: "does not run", Log: "/o'brien/cluster/log/kubelet.log"},
		},
	}
}

// Scripts and tests read these.
func TestStatusFormats(t *testing.T) {
	for _, format := range []string{"table", "json", "env"} {
		t.Run(format, func(t *testing.T) {
			var got bytes.Buffer
			if err := printStatus(&got, format, example()); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "status."+format)
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
	if err := printStatus(&bytes.Buffer{}, "yaml", example()); err == nil || !strings.Contains(err.Error(), "--output=yaml") {
		t.Errorf("another format: %v", err)
	}
}

func TestContents(t *testing.T) {
	var spec image.Spec
	in := contents{
		add:     []string{"a:/a", "b:/b:0750"},
		symlink: []string{"a:/c"},
		dir:     []string{"/d", "/tmp/:1777"},
	}
	if err := in.fill(&spec); err != nil {
		t.Fatal(err)
	}
	want := image.Spec{
		Files: []image.File{{Source: "a", Path: "/a"}, {Source: "b", Path: "/b", Mode: 0o750}},
		Links: []image.Link{{Target: "a", Path: "/c"}},
		Dirs:  []image.Dir{{Path: "/d", Mode: 0o755}, {Path: "/tmp", Mode: 0o777 | fs.ModeSticky}},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Error(diff)
	}
}

func TestContentsRefusals(t *testing.T) {
	for _, tt := range []struct {
		in  contents
		err string
	}{
		{contents{add: []string{"a"}}, "--add=a:"},
		{contents{add: []string{":/a"}}, "--add=:/a:"},
		{contents{add: []string{"a:/a:0755:x"}}, "--add=a:/a:0755:x:"},
		{contents{add: []string{"a:/a:rwx"}}, `mode "rwx" must be octal`},
		{contents{add: []string{"a:/a:99"}}, `mode "99" must be octal`},
		{contents{add: []string{"a:/a:17777"}}, `mode "17777" must be octal`},
		{contents{symlink: []string{"a"}}, "--symlink=a:"},
		{contents{dir: []string{"/a:0755:x"}}, "--dir=/a:0755:x:"},
		{contents{elf: []string{"a"}}, "--elf=a:"},
		{contents{elf: []string{"/no/such/program:/a"}}, "/no/such/program"},
		{contents{busybox: []string{"/no/such/busybox"}}, "/no/such/busybox"},
	} {
		t.Run(tt.err, func(t *testing.T) {
			if err := tt.in.fill(&image.Spec{}); err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// A flag that was not given must not disagree with a cluster that exists.
func TestGiven(t *testing.T) {
	var value string
	cmd := &cobra.Command{}
	cmd.Flags().StringVar(&value, "flag", "default", "")
	if got := given(cmd, "flag", &value); got != nil {
		t.Errorf("not given: %q", *got)
	}
	if err := cmd.Flags().Set("flag", "default"); err != nil {
		t.Fatal(err)
	}
	if got := given(cmd, "flag", &value); got == nil || *got != "default" {
		t.Errorf("given: %v", got)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"up", "--help"}, {"down", "--help"}, {"status", "--help"}, {"load-image", "--help"}, {"logs", "--help"}} {
		cmd := New()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs(args)
		if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), "Usage:") {
			t.Errorf("%v: %v, %s", args, err, out.String())
		}
	}
}
