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

package prepare

import "k8s.io/apimachinery/pkg/types"

// recentSize is far more claims than end on a node within the time that a call
// of the kubelet can be late, which is less than a minute.
const recentSize = 1024

// recent is the UIDs added last.
type recent struct {
	set  map[types.UID]struct{}
	ring []types.UID
	next int // in ring, once it is full
}

func (r *recent) has(uid types.UID) bool {
	_, ok := r.set[uid]
	return ok
}

func (r *recent) add(uid types.UID) {
	if r.has(uid) {
		return
	}
	if r.set == nil {
		r.set = make(map[types.UID]struct{})
	}
	if len(r.ring) < recentSize {
		r.ring = append(r.ring, uid)
	} else {
		delete(r.set, r.ring[r.next])
		r.ring[r.next] = uid
		r.next = (r.next + 1) % recentSize
	}
	r.set[uid] = struct{}{}
}
