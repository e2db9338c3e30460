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

package mounts

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name  string
		table string
		want  []Mount
		err   bool
	}{
		{"with tags", "90 89 254:0 / / rw shared:1 master:2 - ext4 /dev/vda rw,discard\n", []Mount{{"/", "ext4", []string{"rw", "discard"}}}, false},
		{"without tags", "94 93 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n", []Mount{{"/sys/fs/cgroup/cpu", "cgroup", []string{"rw", "cpu", "cpuacct"}}}, false},
		{"escaped", `1 2 0:1 / /a\040b\011c\134d rw - tmpfs none rw` + "\n", []Mount{{"/a b\tc\\d", "tmpfs", []string{"rw"}}}, false},
		{"source is empty", "1 2 0:1 / /a rw - tmpfs  rw\n", []Mount{{"/a", "tmpfs", []string{"rw"}}}, false},
		{"long options", "1 2 0:1 / /a rw - overlay overlay lowerdir=" + strings.Repeat("x", 200000) + "\n", []Mount{{"/a", "overlay", []string{"lowerdir=" + strings.Repeat("x", 200000)}}}, false},
		{"no separator", "1 2 0:1 / /a rw shared:1 tmpfs none rw\n", nil, true},
		{"too few fields", "1 2 / /a - tmpfs none rw\n", nil, true},
		{"empty", "", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(tt.table))
			if (err != nil) != tt.err {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("90 89 254:0 / / rw shared:1 - ext4 /dev/vda rw,discard\n")
	f.Add(`1 2 0:1 / /a\04 rw - tmpfs none rw`)
	f.Fuzz(func(t *testing.T, table string) {
		mounts, err := Parse(strings.NewReader(table))
		if err == nil && len(mounts) > strings.Count(table, "\n")+1 {
			t.Errorf("%d mounts in %q", len(mounts), table)
		}
	})
}

func TestAt(t *testing.T) {
	mounts := []Mount{{Point: "/"}, {Point: "/c"}, {Point: "/cc"}, {Point: "/c/a"}, {Point: "/c/a/b"}, {Point: "/c"}}
	if diff := cmp.Diff([]string{"/c", "/c/a/b", "/c/a", "/c"}, At(mounts, "/c")); diff != "" {
		t.Error(diff)
	}
	if got := At(mounts, "/d"); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestTable(t *testing.T) {
	mounts, err := Table()
	if err != nil {
		t.Fatal(err)
	}
	for _, mount := range mounts {
		if mount.Point == "/proc" {
			return
		}
	}
	if _, err := os.Stat("/proc/self"); err == nil {
		t.Errorf("/proc is not among %d mounts", len(mounts))
	}
}
