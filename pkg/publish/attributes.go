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

package publish

import (
	"fmt"
	"strings"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/memslice/memslice/pkg/gpu"
)

// unknown stands for a name that the GPU could not tell. All devices of this
// driver have the same attributes of this driver, because a CEL expression over
// one that a single device lacks is an error, which ends the scheduling of the
// claim, also onto the GPUs that do match.
const unknown = "unknown"

type attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// Attributes are what claims select a device by.
func Attributes(d gpu.Device) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	g := d.GPU
	a := attributes{}
	a.text("type", string(d.Form))
	a.text("uuid", uuid(d))
	a.text("parentUUID", g.UUID)
	a.text("profile", profile(d))
	a.text("productName", g.ProductName)
	a.text("brand", g.Brand)
	a.text("architecture", g.Architecture)
	a.version("cudaComputeCapability", g.CUDAComputeCapability)
	a.version("cudaDriverVersion", g.CUDADriverVersion)
	a.version("driverVersion", g.DriverVersion)
	a.number("multiprocessors", int64(multiprocessors(d)))
	migCapable := g.MIG != nil
	a["migCapable"] = resourceapi.DeviceAttribute{BoolValue: &migCapable}
	a.text("memoryIsolation", string(d.MemoryIsolation))
	a.text("computeIsolation", string(d.ComputeIsolation))
	a.standard(g)
	return a
}

// uuid of a partition that is made for each claim is its place, since it has no
// UUID before: attributes that must differ, or be equal, then do what they say.
func uuid(d gpu.Device) string {
	switch {
	case d.Form != gpu.MIG:
		return d.GPU.UUID
	case d.Existing != "":
		return d.Existing
	}
	return fmt.Sprintf("%s/%s/%d", d.GPU.UUID, d.Partition.Profile, d.Partition.Start)
}

func profile(d gpu.Device) string {
	if d.Form != gpu.MIG {
		return "none"
	}
	return d.Partition.Profile
}

func multiprocessors(d gpu.Device) int {
	if d.Form != gpu.MIG {
		return d.GPU.Multiprocessors
	}
	return d.Profile.Multiprocessors
}

// standard adds the attributes that devices of other drivers have too. They
// are for matching one device with another, where a value that stands for
// "unknown" would match the wrong ones, so here they are absent.
func (a attributes) standard(g *gpu.GPU) {
	if bus, err := deviceattribute.GetPCIBusIDAttribute(g.PCIBusID); err == nil {
		a[bus.Name] = bus.Value
	}
	if g.PCIeRoot != "" {
		a.text(deviceattribute.StandardDeviceAttributePCIeRoot, g.PCIeRoot)
	}
	if g.NUMANode != nil {
		a.number(deviceattribute.StandardDeviceAttributeNUMANode, *g.NUMANode)
	}
}

func (a attributes) text(name resourceapi.QualifiedName, value string) {
	value = truncate(strings.ToValidUTF8(value, ""), resourceapi.DeviceAttributeMaxValueLength)
	if value == "" {
		value = unknown
	}
	a[name] = resourceapi.DeviceAttribute{StringValue: &value}
}

func (a attributes) version(name resourceapi.QualifiedName, value string) {
	version := semver(value)
	a[name] = resourceapi.DeviceAttribute{VersionValue: &version}
}

func (a attributes) number(name resourceapi.QualifiedName, value int64) {
	a[name] = resourceapi.DeviceAttribute{IntValue: &value}
}

// truncate cuts s to at most n bytes, between runes.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
