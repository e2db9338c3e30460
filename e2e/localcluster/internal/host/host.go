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

// Package host finds out whether this machine can run a node, and decides. The
// decision is pure; looking is not.
package host

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/memslice/memslice/e2e/localcluster/internal/cgroup"
	"github.com/memslice/memslice/e2e/localcluster/internal/mounts"
)

// Facts about a machine. The zero value of a reason means that all is well.
type Facts struct {
	Root       bool
	Runc       string // path; empty: not installed
	AptGet     bool   // runc can be installed
	NoMounts   string // why folders cannot be mounted
	NoCgroups  string // why pods cannot have cgroups
	NoKmsg     string // why the kernel's log, which the kubelet insists on, cannot be read
	NoOverlay  string // why containers' file systems cannot be overlays
	UserMapped bool   // in a user namespace
}

// Mode is what the user asked for.
type Mode string

// The modes.
const (
	Auto Mode = "auto" // a node if there can be one
	Real Mode = "real" // a node, or an error
	None Mode = "none" // no node
)

// Decision is what to run.
type Decision struct {
	Real        bool
	Reason      string // why there is no node
	InstallRunc bool
	Snapshotter string
}

// Decide returns an error only when the mode is unknown or a node is insisted on
// and impossible.
func Decide(mode Mode, f Facts) (Decision, error) {
	switch mode {
	case None:
		return Decision{Reason: "--node=none was given"}, nil
	case Auto, Real:
	default:
		return Decision{}, fmt.Errorf("--node=%s: must be auto, real or none", mode)
	}
	if reasons := obstacles(f); len(reasons) > 0 {
		reason := strings.Join(reasons, "; ")
		if mode == Real {
			return Decision{}, fmt.Errorf("--node=real: no node can run here: %s", reason)
		}
		return Decision{Reason: reason}, nil
	}
	d := Decision{Real: true, InstallRunc: f.Runc == "", Snapshotter: "overlayfs"}
	if f.NoOverlay != "" {
		d.Snapshotter = "native"
	}
	return d, nil
}

func obstacles(f Facts) []string {
	// Without root the rest is only a consequence.
	if !f.Root {
		return []string{"the kubelet and containerd need root: run this as root (sudo) to get a node"}
	}
	var reasons []string
	if f.UserMapped {
		reasons = append(reasons, "root here is an ordinary user outside of this user namespace")
	}
	if f.NoMounts != "" {
		reasons = append(reasons, "mounting is not possible ("+f.NoMounts+"): in a container, give it --privileged")
	}
	if f.NoCgroups != "" {
		reasons = append(reasons, "cgroups cannot be made ("+f.NoCgroups+"): in a container, give it --privileged and a cgroup namespace of the host")
	}
	if f.NoKmsg != "" {
		reasons = append(reasons, "the kubelet cannot read the kernel's log ("+f.NoKmsg+")")
	}
	if f.Runc == "" && !f.AptGet {
		reasons = append(reasons, "runc is not installed: install your distribution's package runc")
	}
	return reasons
}

// Look finds the facts. dir is the cluster's folder and exists; cgroupName is
// tried out.
func Look(dir, cgroupName string) (Facts, error) {
	f := Facts{Root: os.Geteuid() == 0, Runc: FindRunc()}
	_, err := exec.LookPath("apt-get")
	f.AptGet = err == nil
	if !f.Root {
		return f, nil
	}
	uids, err := os.ReadFile("/proc/self/uid_map")
	f.UserMapped = err == nil && !coversAll(string(uids))
	f.NoMounts = reason(mounts.Probe())
	table, err := mounts.Table()
	if err != nil {
		return Facts{}, err
	}
	f.NoCgroups = reason(cgroup.Check(cgroup.Hierarchies(table), cgroupName))
	f.NoKmsg = reason(readable("/dev/kmsg"))
	f.NoOverlay = reason(mounts.ProbeOverlay(dir))
	return f, nil
}

func readable(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	return f.Close()
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// coversAll says whether a uid_map is the initial one, "0 0 4294967295".
func coversAll(uidMap string) bool {
	fields := strings.Fields(uidMap)
	return len(fields) == 3 && fields[0] == "0" && fields[1] == "0" && fields[2] == "4294967295"
}

// FindRunc looks on the PATH and where distributions put it, which is not on
// every user's PATH.
func FindRunc() string {
	for _, name := range []string{"runc", "/usr/sbin/runc", "/usr/local/sbin/runc"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}
