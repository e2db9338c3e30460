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

package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecide(t *testing.T) {
	able := Facts{Root: true, Runc: "/usr/sbin/runc"}
	with := func(change func(*Facts)) Facts {
		f := able
		change(&f)
		return f
	}
	real := Decision{Real: true, Snapshotter: "overlayfs"}
	for _, tt := range []struct {
		name   string
		mode   Mode
		facts  Facts
		want   Decision
		reason string // part of the reason for having no node
		err    string
	}{
		{"able", Auto, able, real, "", ""},
		{"able, insisted on", Real, able, real, "", ""},
		{"able, not wanted", None, able, Decision{}, "--node=none", ""},
		{"not root", Auto, Facts{Runc: "/usr/sbin/runc", AptGet: true}, Decision{}, "need root", ""},
		{"not root, insisted on", Real, Facts{}, Decision{}, "", "need root"},
		{"runc can be installed", Auto, with(func(f *Facts) { f.Runc = ""; f.AptGet = true }), Decision{Real: true, InstallRunc: true, Snapshotter: "overlayfs"}, "", ""},
		{"no runc", Auto, with(func(f *Facts) { f.Runc = "" }), Decision{}, "package runc", ""},
		{"no mounts", Auto, with(func(f *Facts) { f.NoMounts = "EPERM" }), Decision{}, "mounting is not possible (EPERM)", ""},
		{"no cgroups", Auto, with(func(f *Facts) { f.NoCgroups = "EROFS" }), Decision{}, "cgroups cannot be made (EROFS)", ""},
		{"no kernel log", Real, with(func(f *Facts) { f.NoKmsg = "ENOENT" }), Decision{}, "", "kernel's log (ENOENT)"},
		{"user namespace", Auto, with(func(f *Facts) { f.UserMapped = true }), Decision{}, "user namespace", ""},
		{"no overlays", Auto, with(func(f *Facts) { f.NoOverlay = "EINVAL" }), Decision{Real: true, Snapshotter: "native"}, "", ""},
		{"unknown mode", "maybe", able, Decision{}, "", "--node=maybe: must be auto, real or none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decide(tt.mode, tt.facts)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if (tt.reason == "") != (got.Reason == "") || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("reason %q, want %q", got.Reason, tt.reason)
			}
			got.Reason = ""
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every obstacle is told at once, so that nobody removes them one by one.
func TestAllReasonsAreGiven(t *testing.T) {
	_, err := Decide(Real, Facts{Root: true, NoMounts: "first", NoKmsg: "second"})
	if err == nil || !strings.Contains(err.Error(), "first") || !strings.Contains(err.Error(), "second") {
		t.Errorf("%v", err)
	}
}

func TestCoversAll(t *testing.T) {
	for uidMap, want := range map[string]bool{
		"         0          0 4294967295\n": true,
		"         0       1000          1\n": false,
		"0 0 1000\n1000 1 1\n":               false,
		"":                                   false,
	} {
		if coversAll(uidMap) != want {
			t.Errorf("%q: %v", uidMap, !want)
		}
	}
}
