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

package driverroot

import (
	"fmt"
	"strings"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// Capabilities guard what MIG can do: each has a minor number, by which a
// container that has the device node may do it. The driver numbers them once
// for every instance that any GPU could have, in a table that never changes.
const (
	capConfig     = 1
	capMonitor    = 2
	capFirst      = 3
	capGPUs       = 32
	gpuInstances  = 15
	computeInEach = 8
)

// instanceCap is the minor of the capability to use a GPU instance. Those to
// use its compute instances follow it.
func instanceCap(gpuMinor, gpuInstance int) int {
	return capFirst + (gpuMinor*gpuInstances+gpuInstance)*(1+computeInEach)
}

// migMinors is the table as procfs shows it.
func migMinors() string {
	var text strings.Builder
	fmt.Fprintf(&text, "config %d\nmonitor %d\n", capConfig, capMonitor)
	for gpu := range capGPUs {
		for instance := range gpuInstances {
			minor := instanceCap(gpu, instance)
			fmt.Fprintf(&text, "gpu%d/gi%d/access %d\n", gpu, instance, minor)
			for compute := range computeInEach {
				fmt.Fprintf(&text, "gpu%d/gi%d/ci%d/access %d\n", gpu, instance, compute, minor+1+compute)
			}
		}
	}
	return text.String()
}

// capNodes are the device nodes for all instances that a GPU could have. On
// real hosts nvidia-modprobe adds those of an instance when it is made; here
// who makes one may see the driver root read-only, so they all exist from the
// start.
func capNodes(gpuMinor int) []node {
	all := make([]node, gpuInstances*(1+computeInEach))
	for i := range all {
		all[i] = capNode(instanceCap(gpuMinor, 0) + i)
	}
	return all
}

func capNode(minor int) node {
	return node{fmt.Sprintf("nvidia-caps/nvidia-cap%d", minor), majorCaps, uint32(minor)}
}

// syncProc writes what a loaded driver shows in procfs.
func (r *Root) syncProc(s *state.State) error {
	path := r.join("proc/driver/nvidia-caps/mig-minors")
	if !s.Driver.Loaded {
		return r.remove(path)
	}
	return r.writeFile(path, []byte(migMinors()), 0o444)
}
