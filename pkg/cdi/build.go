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

package cdi

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/memslice/memslice/pkg/gpu"
)

// The environment in which a container finds what it was granted. All but the
// bare envMemory end in the name of the request, and hold one value for each
// device of the request, in the order of the allocation, separated by commas.
const (
	envMemory  = "MEMSLICE_MEMORY_BYTES"
	envCompute = "MEMSLICE_COMPUTE_PERCENT"
	envUUID    = "MEMSLICE_GPU_UUID"
)

// build makes the spec of a claim from that of its GPUs and MIG instances. Two
// shares of one GPU are two devices. Returned with it are their qualified names,
// one per assignment.
func build(uid types.UID, assignments []gpu.Assignment, source *specs.Spec, confine Confine) (*specs.Spec, []string, error) {
	spec := &specs.Spec{Kind: kind, ContainerEdits: source.ContainerEdits}
	var ids []string
	for i, a := range assignments {
		at := slices.IndexFunc(source.Devices, func(d specs.Device) bool { return d.Name == visibleUUID(a) })
		if at < 0 {
			return nil, nil, fmt.Errorf("no edits for %s", visibleUUID(a))
		}
		// The number alone would do. The request is for those who read it.
		name := fmt.Sprintf("%s-%s-%d", uid, strings.ReplaceAll(a.Request, "/", "-"), i)
		device := specs.Device{Name: name, ContainerEdits: source.Devices[at].ContainerEdits}
		device.ContainerEdits.Env = slices.Concat(device.ContainerEdits.Env, environment(a.Request, assignments))
		if a.Isolation == gpu.IsolationCgroup {
			device.ContainerEdits.Hooks = slices.Concat(device.ContainerEdits.Hooks, confine(uid, i).Hooks)
		}
		spec.Devices = append(spec.Devices, device)
		ids = append(ids, parser.QualifiedName(Vendor, Class, name))
	}
	version, err := specs.MinimumRequiredVersion(spec)
	if err != nil {
		return nil, nil, err
	}
	spec.Version = version
	return spec, ids, nil
}

// visibleUUID is that of what a container sees: a MIG instance or a GPU.
func visibleUUID(a gpu.Assignment) string { return cmp.Or(a.Instance.UUID, a.UUID) }

// environment tells the containers of a request what it was granted. It is the
// same on all devices of the request, since a container has all or none of
// them and the last one would win.
func environment(request string, assignments []gpu.Assignment) []string {
	request = resourceclaim.BaseRequestRef(request)
	var memory, compute, uuids []string
	var computeGranted bool
	for _, a := range assignments {
		if resourceclaim.BaseRequestRef(a.Request) != request {
			continue
		}
		uuids = append(uuids, visibleUUID(a))
		if a.AdminAccess {
			continue
		}
		memory = append(memory, strconv.FormatInt(a.Memory, 10))
		compute = append(compute, strconv.FormatInt(a.Compute, 10))
		computeGranted = computeGranted || a.Compute > 0
	}
	suffix := "_" + strings.ToUpper(strings.ReplaceAll(request, "-", "_"))
	env := []string{envUUID + suffix + "=" + strings.Join(uuids, ",")}
	if len(memory) > 0 {
		env = append(env, envMemory+suffix+"="+strings.Join(memory, ","))
	}
	if computeGranted {
		env = append(env, envCompute+suffix+"="+strings.Join(compute, ","))
	}
	if only := assignments[0]; len(assignments) == 1 && only.Form == gpu.Slice && !only.AdminAccess {
		env = append(env, envMemory+"="+memory[0])
	}
	return env
}
