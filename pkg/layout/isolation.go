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
	"cmp"

	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
)

// isolation is what holds shares of the GPU to their memory: the strongest
// mechanism that the driver has, unless another one is configured.
func (d *decision) isolation() gpu.Isolation {
	if d.config.Isolation.Memory != v1alpha1.IsolationNone && d.gpu.MemoryLimits {
		return gpu.IsolationCgroup
	}
	return gpu.IsolationNone
}

// enforceable leaves shares out of an offer that would be held to their memory by
// less than what is configured.
func (d *decision) enforceable(o *publish.Offer) {
	if !o.Shares || o.Isolation != gpu.IsolationNone {
		return
	}
	config := d.config.Isolation
	var asked string
	switch {
	case config.Memory == v1alpha1.IsolationCgroup:
		asked = "isolation.memory is Cgroup"
	case ptr.Deref(config.Required, false):
		asked = "isolation.required is true"
	default:
		return
	}
	o.Shares = false
	d.problem("not offered in shares: %s, and the NVIDIA driver %s cannot limit the memory of a cgroup on it, which takes R615 or newer and cgroup v2 on the node; where it should, the log says what NVML answered",
		asked, cmp.Or(d.gpu.DriverVersion, "(of unknown version)"))
}
