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

//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/api/metadata"

	"github.com/memslice/memslice/e2e/containerview"
	"github.com/memslice/memslice/e2e/harness"
)

// sees checks that a container finds just what was granted: the environment, the
// device nodes and the metadata. Grants are in the order of the allocation.
func (k *kit) sees(pod *corev1.Pod, container string, grants ...harness.Grant) containerview.View {
	k.Helper()
	view, err := k.Look(k.ctx, pod, container)
	k.ok(err)
	var nodes, capabilities []string
	wanted := map[string]string{}
	for _, g := range grants {
		promise, err := k.Promised(k.ctx, g)
		k.ok(err)
		nodes = append(nodes, promise.Node)
		capabilities = append(capabilities, promise.Capabilities...)
		list(wanted, harness.MemoryVariable(g.Request), fmt.Sprint(g.Memory))
		list(wanted, harness.UUIDVariable(g.Request), promise.UUID)
		k.seesMetadata(view, g, promise.UUID)
	}
	for variable, value := range wanted {
		if got := view.Env[variable]; got != value {
			k.Errorf("container %s of pod %s has %s=%q, want %q", container, pod.Name, variable, got, value)
		}
	}
	for variable := range view.Env {
		if _, ok := wanted[variable]; !ok && variable != plainVariable && !strings.HasPrefix(variable, computePrefix) {
			k.Errorf("container %s of pod %s has %s, which none of its requests explains", container, pod.Name, variable)
		}
	}
	if nodes = distinct(nodes); !slices.Equal(view.GPUNodes(), nodes) {
		k.Errorf("container %s of pod %s has the GPUs' device nodes %q, want %q", container, pod.Name, view.GPUNodes(), nodes)
	}
	if capabilities = distinct(capabilities); !slices.Equal(view.CapabilityNodes(), capabilities) {
		k.Errorf("container %s of pod %s has the capability nodes %q, want %q", container, pod.Name, view.CapabilityNodes(), capabilities)
	}
	if len(grants) > 0 && !slices.Contains(view.DeviceNodes, "/dev/nvidiactl") {
		k.Errorf("container %s of pod %s lacks /dev/nvidiactl, it has %q", container, pod.Name, view.DeviceNodes)
	}
	return view
}

const (
	// plainVariable is set where a claim holds a single share.
	plainVariable = "MEMSLICE_MEMORY_BYTES"
	computePrefix = "MEMSLICE_COMPUTE_PERCENT"
)

// list adds a value to a variable, after a comma where it has one.
func list(variables map[string]string, name, value string) {
	if former, ok := variables[name]; ok {
		value = former + "," + value
	}
	variables[name] = value
}

func (k *kit) seesMetadata(view containerview.View, g harness.Grant, wantUUID string) {
	k.Helper()
	request, _, _ := strings.Cut(g.Request, "/")
	devices, err := view.Devices(request)
	if err != nil {
		k.Error(err)
		return
	}
	at := slices.IndexFunc(devices, func(d metadata.Device) bool {
		return d.Driver == harness.DriverName && d.Pool == g.Device.Pool && d.Name == g.Device.Name
	})
	if at < 0 {
		k.Errorf("metadata of request %s lacks %s/%s: %+v", g.Request, g.Device.Pool, g.Device.Name, devices)
		return
	}
	attributes := devices[at].Attributes
	if uuid := attributes["uuid"].StringValue; uuid == nil || *uuid != wantUUID {
		k.Errorf("metadata of request %s lacks uuid=%s: %v", g.Request, wantUUID, attributes)
	}
	if granted := attributes["grantedMemoryBytes"].IntValue; granted == nil || *granted != g.Memory {
		k.Errorf("metadata of request %s lacks grantedMemoryBytes=%d: %v", g.Request, g.Memory, attributes)
	}
}

// distinct sorts and leaves out what is there again.
func distinct(all []string) []string {
	all = slices.Sorted(slices.Values(all))
	return slices.Compact(all)
}

// published waits until check has nothing to say about the node's devices, and
// returns them.
func (k *kit) published(what string, check func([]harness.Device) string) []harness.Device {
	k.Helper()
	devices, err := k.AwaitPublished(k.ctx, what, check)
	k.ok(err)
	return devices
}

// awaitForms waits until a GPU is published in just these forms: the type of
// device, and its taints where it has any.
func (k *kit) awaitForms(uuid string, want ...string) {
	k.Helper()
	k.published(fmt.Sprintf("GPU %s in the forms %q", uuid, want), func(devices []harness.Device) string {
		if got := forms(devices, uuid); !slices.Equal(got, want) {
			return fmt.Sprintf("it is offered as %q", got)
		}
		return ""
	})
}

// forms are those in which a GPU is published, sorted.
func forms(devices []harness.Device, uuid string) []string {
	var all []string
	for _, d := range devices {
		if d.GPU == uuid {
			all = append(all, strings.TrimSpace(d.Type+" "+d.Taints))
		}
	}
	return distinct(all)
}

// gpus are the UUIDs of the node's, in the order of their slots.
func (k *kit) gpus() []string {
	k.Helper()
	state, err := k.GPUs.State(k.ctx)
	k.ok(err)
	var all []string
	for _, gpu := range state.GPUs {
		all = append(all, gpu.UUID)
	}
	return all
}

// configure has the chart installed with values about the nodes, until the
// scenario ends. The plugin knows of it a moment later.
func (k *kit) configure(format string, args ...any) {
	k.Helper()
	k.afterward(func() error { return k.Configure(k.ctx, k.config) })
	k.ok(k.Configure(k.ctx, fmt.Sprintf(format, args...)))
}
