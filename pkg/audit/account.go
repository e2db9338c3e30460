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

package audit

import (
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/isolation"
)

// process is one on a GPU, and where it is.
type process struct {
	gpu.Process
	command   string
	pod       string // UID; empty for a process of no pod
	container string // ID
}

// account says whose the memory of a GPU's processes is. claims are all prepared
// ones, and get what their devices on that GPU have; given are the shares that
// containers are known to have. It returns the processes that are nobody's.
func account(uuid string, claims []Claim, given map[string][]isolation.Share, processes []process) (foreign []Foreign) {
	for _, p := range processes {
		devices := owners(uuid, claims, given, p)
		if len(devices) == 0 {
			if !welcome(uuid, claims, p.pod) {
				foreign = append(foreign, Foreign{PID: p.PID, Command: p.command, Memory: p.Memory})
			}
			continue
		}
		spend(devices, p.Memory)
	}
	return foreign
}

// owners are the devices on a GPU that the memory of a process can be meant to be
// of: those that its container was given, and where that is not known, those of
// the claims of its pod.
func owners(uuid string, claims []Claim, given map[string][]isolation.Share, p process) (devices []*Device) {
	if p.pod == "" {
		return nil
	}
	of := func(is func(*Claim, int) bool) {
		for i := range claims {
			for n := range claims[i].Devices {
				d := &claims[i].Devices[n]
				if d.Grant.UUID == uuid && !d.Grant.AdminAccess && is(&claims[i], n) {
					devices = append(devices, d)
				}
			}
		}
	}
	shares := map[isolation.Share]bool{}
	for _, s := range given[p.container] {
		shares[s] = true
	}
	of(func(c *Claim, n int) bool { return shares[isolation.Share{Claim: c.UID, Device: n}] })
	if len(devices) == 0 {
		of(func(c *Claim, _ int) bool { return c.reservedFor(p.pod) })
	}
	return devices
}

// welcome tells whether a pod may use a GPU beside what is granted of it.
func welcome(uuid string, claims []Claim, pod string) bool {
	for _, c := range claims {
		for _, d := range c.Devices {
			if d.Grant.UUID == uuid && d.Grant.AdminAccess && c.reservedFor(pod) {
				return true
			}
		}
	}
	return false
}

func (c *Claim) reservedFor(pod string) bool {
	for _, p := range c.Pods {
		if pod != "" && p.UID == pod {
			return true
		}
	}
	return false
}

// spend adds memory to what devices have, up to what was granted of each, and the
// rest to the last.
func spend(devices []*Device, bytes uint64) {
	for i, d := range devices {
		part := bytes
		if last := i == len(devices)-1; !last {
			granted := uint64(max(d.Grant.Memory, 0))
			part = min(bytes, granted-min(granted, d.Used))
		}
		d.Used += part
		bytes -= part
	}
}
