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

// Package containerview tells what a container finds of its GPUs: environment,
// device nodes and device metadata.
//
// It gets the answer in two ways, so that the same checks work with and without
// a container: from the output of a script that ran in one, or from the CDI
// devices that a runtime would have injected. It does not know how the script
// gets into the container, nor the Kubernetes API.
package containerview

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

// envPrefix begins the variables that memslice sets.
const envPrefix = "MEMSLICE_"

// View is what one container finds.
type View struct {
	// Env has the variables that start with MEMSLICE_.
	Env map[string]string `json:"env,omitempty"`
	// DeviceNodes are the paths of NVIDIA's device nodes, sorted.
	DeviceNodes []string `json:"deviceNodes,omitempty"`
	// Metadata has the text of each device metadata file (KEP-5304) by its path.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// GPUNodes are the device nodes that stand for one GPU each, such as
// /dev/nvidia0, without those that every GPU container has.
func (v View) GPUNodes() []string {
	return slices.DeleteFunc(slices.Clone(v.DeviceNodes), func(path string) bool {
		_, err := strconv.ParseUint(strings.TrimPrefix(path, "/dev/nvidia"), 10, 32)
		return err != nil
	})
}

// CapabilityNodes are the device nodes that give access to MIG instances, and to
// the management of MIG.
func (v View) CapabilityNodes() []string {
	return slices.DeleteFunc(slices.Clone(v.DeviceNodes), func(path string) bool {
		return !strings.HasPrefix(path, "/dev/nvidia-caps/")
	})
}

// Bytes is the number in a variable.
func (v View) Bytes(variable string) (int64, error) {
	text, ok := v.Env[variable]
	if !ok {
		return 0, fmt.Errorf("the container has no variable %s; it has %s", variable,
			strings.Join(slices.Sorted(maps.Keys(v.Env)), ", "))
	}
	bytes, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("variable %s=%q is not a number of bytes: %w", variable, text, err)
	}
	return bytes, nil
}

// Devices is the metadata of the devices of one request. The request is the
// claim's own, without the alternative that was chosen.
func (v View) Devices(request string) ([]metadata.Device, error) {
	for _, path := range slices.Sorted(maps.Keys(v.Metadata)) {
		var file metadata.DeviceMetadata
		if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(strings.NewReader(v.Metadata[path])), &file); err != nil {
			return nil, fmt.Errorf("metadata file %s: %w", path, err)
		}
		for _, r := range file.Requests {
			if base, _, _ := strings.Cut(r.Name, "/"); base == request {
				return r.Devices, nil
			}
		}
	}
	return nil, fmt.Errorf("the container has no metadata of request %q; it has %s", request,
		strings.Join(slices.Sorted(maps.Keys(v.Metadata)), ", "))
}
