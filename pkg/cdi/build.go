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

// build makes the spec of a claim from that of its GPUs. Two shares of one GPU
// are two devices. Returned with it are their qualified names, one per grant.
func build(uid types.UID, grants []gpu.Grant, source *specs.Spec) (*specs.Spec, []string, error) {
	spec := &specs.Spec{Kind: kind, ContainerEdits: source.ContainerEdits}
	var ids []string
	for i, g := range grants {
		at := slices.IndexFunc(source.Devices, func(d specs.Device) bool { return d.Name == g.UUID })
		if at < 0 {
			return nil, nil, fmt.Errorf("no edits for GPU %s", g.UUID)
		}
		// The number alone would do. The request is for those who read it.
		name := fmt.Sprintf("%s-%s-%d", uid, strings.ReplaceAll(g.Request, "/", "-"), i)
		device := specs.Device{Name: name, ContainerEdits: source.Devices[at].ContainerEdits}
		device.ContainerEdits.Env = slices.Concat(device.ContainerEdits.Env, environment(g.Request, grants))
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

// environment tells the containers of a request what it was granted. It is the
// same on all devices of the request, since a container has all or none of
// them and the last one would win.
func environment(request string, grants []gpu.Grant) []string {
	request = resourceclaim.BaseRequestRef(request)
	var memory, compute, uuids []string
	var computeGranted bool
	for _, g := range grants {
		if resourceclaim.BaseRequestRef(g.Request) != request {
			continue
		}
		uuids = append(uuids, g.UUID)
		if g.AdminAccess {
			continue
		}
		memory = append(memory, strconv.FormatInt(g.Memory, 10))
		compute = append(compute, strconv.FormatInt(g.Compute, 10))
		computeGranted = computeGranted || g.Compute > 0
	}
	suffix := "_" + strings.ToUpper(strings.ReplaceAll(request, "-", "_"))
	env := []string{envUUID + suffix + "=" + strings.Join(uuids, ",")}
	if len(memory) > 0 {
		env = append(env, envMemory+suffix+"="+strings.Join(memory, ","))
	}
	if computeGranted {
		env = append(env, envCompute+suffix+"="+strings.Join(compute, ","))
	}
	if len(grants) == 1 && grants[0].Form == gpu.Slice && !grants[0].AdminAccess {
		env = append(env, envMemory+"="+memory[0])
	}
	return env
}
