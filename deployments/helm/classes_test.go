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

package chart_test

import (
	"maps"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
)

// Each device that the plugin publishes is of exactly one class, and no
// device, of whatever driver, makes a class fail: that would fail the pod.
func TestClasses(t *testing.T) {
	selectors := map[string]dracel.CompilationResult{}
	for _, class := range all[*resourceapi.DeviceClass](render(t, installation{})) {
		if class.Spec.ExtendedResourceName != nil {
			t.Errorf("Class %s has extended resource %s unasked", class.Name, *class.Spec.ExtendedResourceName)
		}
		if len(class.Spec.Selectors) != 1 {
			t.Fatalf("Class %s has %d selectors, want 1", class.Name, len(class.Spec.Selectors))
		}
		envType := environment.NewExpressions
		selector := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true}).
			CompileCELExpression(class.Spec.Selectors[0].CEL.Expression, dracel.Options{EnvType: &envType})
		if selector.Error != nil {
			t.Fatalf("Class %s: %v", class.Name, selector.Error)
		}
		if selector.MaxCost > resourceapi.CELSelectorExpressionMaxCost {
			t.Errorf("The selector of class %s costs up to %d, the API allows %d", class.Name, selector.MaxCost, resourceapi.CELSelectorExpressionMaxCost)
		}
		selectors[class.Name] = selector
	}
	if got, want := slices.Sorted(maps.Keys(selectors)), []string{"gpu.memslice.dev", "mig.memslice.dev", "slice.memslice.dev"}; !slices.Equal(got, want) {
		t.Fatalf("The chart has classes %v, want %v", got, want)
	}

	type device struct {
		driver     string
		attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
		class      string // empty: none
	}
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	devices := map[string]device{
		"a later form":           {driver: driverName, attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": text("time-slice")}},
		"no type":                {driver: driverName, attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"uuid": text("GPU-1")}},
		"no attributes":          {driver: driverName},
		"another driver":         {driver: "gpu.example.com", attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": text("gpu")}},
		"another driver's claim": {driver: "gpu.example.com", attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{driverName + "/type": text("gpu")}},
	}
	for name, class := range map[gpu.Form]string{gpu.Slice: "slice.memslice.dev", gpu.Whole: "gpu.memslice.dev", gpu.MIG: "mig.memslice.dev"} {
		devices["published "+string(name)] = device{driver: driverName, attributes: published(t)[name], class: class}
	}
	for name, d := range devices {
		for class, selector := range selectors {
			matches, _, err := selector.DeviceMatches(t.Context(), dracel.Device{Driver: d.driver, Attributes: d.attributes})
			if err != nil {
				t.Errorf("%s in class %s: %v", name, class, err)
			}
			if matches != (class == d.class) {
				t.Errorf("%s in class %s: %v", name, class, matches)
			}
		}
	}
}

func TestExtendedResource(t *testing.T) {
	for _, class := range all[*resourceapi.DeviceClass](render(t, set("deviceClasses.extendedResourceName=nvidia.com/gpu"))) {
		name := class.Spec.ExtendedResourceName
		if class.Name != "gpu.memslice.dev" {
			if name != nil {
				t.Errorf("Class %s has extended resource %s, which is for whole GPUs", class.Name, *name)
			}
		} else if name == nil || *name != "nvidia.com/gpu" {
			t.Errorf("Class %s has extended resource %v, want nvidia.com/gpu", class.Name, name)
		}
	}
}

// published is what the plugin says of one GPU, by the form it is offered in.
func published(t *testing.T) map[gpu.Form]map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	t.Helper()
	forms := map[gpu.Form]map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	for _, d := range devices(t) {
		forms[d.Form] = publish.Attributes(d)
	}
	if len(forms) != 3 {
		t.Fatalf("The GPU is published in %d forms, want 3", len(forms))
	}
	return forms
}

// devices are those of one GPU that is offered in each form.
func devices(t *testing.T) []gpu.Device {
	t.Helper()
	profile := gpu.Profile{Name: "1g.10gb", MemorySlices: 1, ComputeSlices: 1, Count: 7, Memory: 10 << 30, Multiprocessors: 16, Starts: []int{0, 1, 2, 3, 4, 5, 6}}
	card := gpu.GPU{
		UUID:            "GPU-5d2f9c1e-0000-4000-8000-000000000001",
		ProductName:     "NVIDIA H100 80GB HBM3",
		Architecture:    "Hopper",
		Memory:          &gpu.Memory{Total: 80 << 30},
		Multiprocessors: 132,
		PCIBusID:        "0000:1b:00.0",
		MIG:             &gpu.MultiInstance{Profiles: []gpu.Profile{profile}},
	}
	devices, problems := publish.Devices([]publish.Offer{{
		GPU: card, Pool: publish.PoolName("node-1", &card), Shares: true, Whole: true,
		Profiles: []gpu.Profile{profile}, MIGOnDemand: true, MemoryMin: 256 << 20, MemoryStep: 1 << 20, Ranks: gpu.MaxRanks,
	}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return devices
}
