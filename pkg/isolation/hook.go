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
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"tags.cncf.io/container-device-interface/specs-go"
)

// hookTimeout is after how many seconds the container runtime gives up on the
// hook, which itself gives up before.
const hookTimeout = 20

// Hook is the program by which container runtimes ask for limits.
type Hook struct {
	Path   string // of the program, on the host
	Socket string // of the plugin
}

// Edits have the runtime ask for the limits of a share before it starts a
// container that has the share.
func (h Hook) Edits(claim types.UID, device int) specs.ContainerEdits {
	return specs.ContainerEdits{Hooks: []*specs.Hook{{
		// The container's cgroup exists, and its program does not run yet.
		HookName: "createRuntime",
		Path:     h.Path,
		Args:     []string{h.Path, "--socket", h.Socket, "--claim", string(claim), "--device", strconv.Itoa(device)},
		Timeout:  ptr.To(hookTimeout),
	}}}
}
