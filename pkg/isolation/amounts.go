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

package isolation

import (
	"github.com/memslice/memslice/pkg/gpu"
)

// amounts is how many bytes of each GPU, by UUID, shares come to that a cgroup is
// limited to. A share that stands there twice counts once, and one that is not to
// be enforced, or of which nothing is known any more, not at all.
func amounts(shares []Share, grant func(Share) (gpu.Grant, bool)) map[string]uint64 {
	sum := map[string]uint64{}
	counted := map[Share]bool{}
	for _, s := range shares {
		g, ok := grant(s)
		if !ok || counted[s] || g.Isolation != gpu.IsolationCgroup || g.Memory < 0 {
			continue
		}
		counted[s] = true
		// It cannot wrap around: the sum of claims on one GPU fits the GPU.
		sum[g.UUID] += uint64(g.Memory)
	}
	return sum
}

// ofPod are the shares that the containers of a pod have.
func ofPod(pod string, all []Held) (shares []Share) {
	for _, h := range all {
		if h.Container.Pod == pod {
			shares = append(shares, h.Shares...)
		}
	}
	return shares
}
