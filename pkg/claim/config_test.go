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

package claim

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/pkg/gpu"
)

const (
	fromClass = resourceapi.AllocationConfigSourceClass
	fromClaim = resourceapi.AllocationConfigSourceClaim
)

func parameters(isolation string) string {
	doc := `{"apiVersion":"memslice.dev/v1alpha1","kind":"ShareConfig"`
	if isolation != "" {
		doc += `,"isolation":"` + isolation + `"`
	}
	return doc + "}"
}

// TestConfig has a GPU that offers cgroup, so that a claim passes where what it
// asks for ends as Any, None or Cgroup and fails where it ends as MPS.
func TestConfig(t *testing.T) {
	ours := func(source resourceapi.AllocationConfigSource, isolation string, requests ...string) resourceapi.DeviceAllocationConfiguration {
		return opaque(source, gpu.DriverName, parameters(isolation), requests...)
	}
	for name, tc := range map[string]struct {
		configs []resourceapi.DeviceAllocationConfiguration
		request string
		refused bool
	}{
		"none":                                {},
		"any":                                 {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClaim, "Any")}},
		"none is always possible":             {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClaim, "None")}},
		"what the GPU offers":                 {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClaim, "Cgroup")}},
		"what it does not offer":              {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClaim, "MPS")}, refused: true},
		"by the class":                        {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClass, "MPS")}, refused: true},
		"the claim wins over the class":       {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClass, "MPS"), ours(fromClaim, "Cgroup")}},
		"whatever their order":                {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClaim, "Cgroup"), ours(fromClass, "MPS")}},
		"what the claim leaves out stays":     {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClass, "MPS"), ours(fromClaim, "")}, refused: true},
		"the last one of the claim wins":      {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClaim, "Any"), ours(fromClaim, "MPS")}, refused: true},
		"addressed to the request":            {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClaim, "MPS", "gpu")}, refused: true},
		"addressed to another":                {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClaim, "MPS", "other")}},
		"addressed to the parent":             {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClaim, "MPS", "gpu")}, request: "gpu/large", refused: true},
		"addressed to the sub-request":        {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClaim, "MPS", "gpu/large")}, request: "gpu/large", refused: true},
		"addressed to its sibling":            {configs: []resourceapi.DeviceAllocationConfiguration{ours(fromClaim, "MPS", "gpu/small")}, request: "gpu/large"},
		"of another driver":                   {configs: []resourceapi.DeviceAllocationConfiguration{opaque(fromClaim, "gpu.nvidia.com", `{"sharing":{}}`)}},
		"not decoded where it does not apply": {configs: []resourceapi.DeviceAllocationConfiguration{opaque(fromClaim, gpu.DriverName, "{", "other")}},
	} {
		t.Run(name, func(t *testing.T) {
			r := shareResult("4Gi")
			if tc.request != "" {
				r.Request = tc.request
			}
			c := allocated(r)
			c.Status.Allocation.Devices.Config = tc.configs
			_, err := FromClaim(c, offering("cgroup"))
			if (err != nil) != tc.refused {
				t.Errorf("error %v, want one: %v", err, tc.refused)
			}
		})
	}
}

func offering(isolation gpu.Isolation) node {
	devices := gpus(1, 80*gib)
	for name, d := range devices {
		d.MemoryIsolation = isolation
		devices[name] = d
	}
	return devices
}

func TestConfigRefusal(t *testing.T) {
	for name, tc := range map[string]struct {
		config resourceapi.DeviceAllocationConfiguration
		want   []string
	}{
		"unknown field": {
			opaque(fromClaim, gpu.DriverName, `{"apiVersion":"memslice.dev/v1alpha1","kind":"ShareConfig","isolatoin":"Any"}`),
			[]string{"claim ns/claim", "config[1]", "from the claim", "opaque.parameters", `unknown field "isolatoin"`},
		},
		"wrongly-cased field of a class": {
			opaque(fromClass, gpu.DriverName, `{"apiVersion":"memslice.dev/v1alpha1","kind":"ShareConfig","Isolation":"Any"}`),
			[]string{"config[1]", "from the device class", `unknown field "Isolation"`},
		},
		"another kind": {
			opaque(fromClaim, gpu.DriverName, `{"apiVersion":"gpu.nvidia.com/v1","kind":"GpuConfig"}`),
			[]string{"config[1]", `"GpuConfig"`, `"ShareConfig"`, `"memslice.dev/v1alpha1"`},
		},
		"unknown value": {
			opaque(fromClaim, gpu.DriverName, parameters("Magic")),
			[]string{"status.allocation.devices.config[1].opaque.parameters.isolation", `"Magic"`, `"Cgroup"`},
		},
		"what the GPU does not offer": {
			opaque(fromClaim, gpu.DriverName, parameters("Cgroup")),
			[]string{"claim ns/claim", `request "gpu"`, "isolation Cgroup", "config[1]", uuid, `offers "none"`, `memoryIsolation == "cgroup"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := allocated(shareResult("4Gi"))
			c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{
				opaque(fromClass, gpu.DriverName, parameters("Any")), tc.config,
			}
			_, err := FromClaim(c, offering(gpu.IsolationNone))
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestConfigOfWholeGPU(t *testing.T) {
	c := allocated(result{Request: "gpu", Driver: gpu.DriverName, Pool: pool, Device: "gpu-0"})
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{opaque(fromClaim, gpu.DriverName, parameters("Cgroup"))}
	if _, err := FromClaim(c, offering(gpu.IsolationNone)); err != nil {
		t.Errorf("a whole GPU has no neighbour to be isolated from: %v", err)
	}
	c.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw = []byte("{")
	if _, err := FromClaim(c, offering(gpu.IsolationNone)); err == nil {
		t.Error("configuration that does not decode is accepted for a whole GPU")
	}
}

// TestConfigOfPartition: hardware isolation is more than any mechanism that
// configuration can insist on, so that none is refused, and "an H100 partition,
// else a share with a limit" is one claim.
func TestConfigOfPartition(t *testing.T) {
	for _, isolation := range []string{"Any", "None", "MPS", "Cgroup"} {
		c := allocated(result{Request: "gpu/mig", Driver: gpu.DriverName, Pool: pool + "/gpu-0", Device: "mig-0-1g.10gb-0"})
		c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{opaque(fromClaim, gpu.DriverName, parameters(isolation), "gpu")}
		if _, err := FromClaim(c, gpus(1, 80*gib)); err != nil {
			t.Errorf("isolation %s: %v", isolation, err)
		}
	}
}

// What is to hold a grant follows from what is asked for and what the device
// offers.
func TestIsolation(t *testing.T) {
	share, wholeGPU := shareResult("4Gi"), result{Request: "gpu", Driver: gpu.DriverName, Pool: pool, Device: "gpu-0"}
	look := wholeGPU
	look.AdminAccess = ptr.To(true)
	for name, tc := range map[string]struct {
		result  result
		asked   string
		offered gpu.Isolation
		must    bool
		want    gpu.Isolation
		refused string
	}{
		"what the GPU offers":               {result: share, offered: gpu.IsolationCgroup, want: gpu.IsolationCgroup},
		"nothing, where it offers nothing":  {result: share, offered: gpu.IsolationNone, want: gpu.IsolationNone},
		"any":                               {result: share, asked: "Any", offered: gpu.IsolationCgroup, want: gpu.IsolationCgroup},
		"just that":                         {result: share, asked: "Cgroup", offered: gpu.IsolationCgroup, want: gpu.IsolationCgroup},
		"less than it offers":               {result: share, asked: "None", offered: gpu.IsolationCgroup, want: gpu.IsolationNone},
		"less than the node allows":         {result: share, asked: "None", offered: gpu.IsolationCgroup, must: true, refused: "isolation.required"},
		"no less than the node allows":      {result: share, asked: "Any", offered: gpu.IsolationCgroup, must: true, want: gpu.IsolationCgroup},
		"the whole GPU":                     {result: wholeGPU, asked: "None", offered: gpu.IsolationNone, must: true, want: gpu.IsolationNone},
		"a look at a GPU that offers a lot": {result: look, offered: gpu.IsolationCgroup, want: gpu.IsolationNone},
	} {
		t.Run(name, func(t *testing.T) {
			devices := offering(tc.offered)
			for name, d := range devices {
				d.MustIsolate = tc.must
				devices[name] = d
			}
			c := allocated(tc.result)
			if tc.asked != "" {
				c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{opaque(fromClaim, gpu.DriverName, parameters(tc.asked))}
			}
			plan, err := FromClaim(c, devices)
			switch {
			case tc.refused != "":
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("got %v, want %q", err, tc.refused)
				}
			case err != nil:
				t.Error(err)
			case plan.Grants[0].Isolation != tc.want:
				t.Errorf("got %q, want %q", plan.Grants[0].Isolation, tc.want)
			}
		})
	}
}
