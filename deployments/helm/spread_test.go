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
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/memslice/memslice/pkg/golden"
	"github.com/memslice/memslice/pkg/gpu"
)

// placement is what the API server does with claims and templates.
type placement struct {
	mutation mutation
	policy   policy
}

func newPlacement(t *testing.T, i installation) placement {
	t.Helper()
	objects := render(t, i)
	mutating := only[*admissionregistrationv1.MutatingAdmissionPolicy](t, objects)
	if binding := only[*admissionregistrationv1.MutatingAdmissionPolicyBinding](t, objects); binding.Spec.PolicyName != mutating.Name || binding.Spec.MatchResources != nil {
		t.Errorf("The binding is to policy %s with matchResources %v, the chart's policy is %s", binding.Spec.PolicyName, binding.Spec.MatchResources, mutating.Name)
	}
	validating := named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, "-spread")
	if binding := named[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, objects, "-spread"); binding.Spec.PolicyName != validating.Name || binding.Spec.MatchResources != nil {
		t.Errorf("The binding is to policy %s with matchResources %v, the chart's policy is %s", binding.Spec.PolicyName, binding.Spec.MatchResources, validating.Name)
	}
	return placement{mutation: compileMutation(t, mutating), policy: compile(t, validating)}
}

// admit returns what is stored, and the message if it is denied.
func (p placement) admit(t *testing.T, w write) (runtime.Object, string) {
	t.Helper()
	w.new = p.mutation.apply(t, w)
	return w.new, p.policy.review(t, w)
}

// Each file of testdata/spread is a claim or a template, and its golden file is
// what is stored of it.
func TestSpread(t *testing.T) {
	placement := newPlacement(t, installation{})
	files, err := filepath.Glob("testdata/spread/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".golden.yaml") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			asked := one(t, string(content))
			stored, denied := placement.admit(t, write{new: asked})
			if denied != "" {
				t.Fatalf("Denied: %s", denied)
			}
			text, err := yaml.Marshal(stored)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, strings.TrimSuffix(file, ".yaml")+".golden.yaml", append([]byte(header(t)), text...))

			// As for the claims that are made from a template.
			if again, denied := placement.admit(t, write{new: stored}); denied != "" || !cmp.Equal(stored, again) {
				t.Errorf("What is stored, asked for: %s %s", denied, cmp.Diff(stored, again))
			}
			// As by "kubectl apply", when others use fewer ranks by now.
			later := newPlacement(t, set("spreadPolicy.ranks=2"))
			if again, denied := later.admit(t, write{new: asked, old: stored}); denied != "" || !cmp.Equal(stored, again) {
				t.Errorf("Asked for once more: %s %s", denied, cmp.Diff(stored, again))
			}
		})
	}
	if len(files) == 0 {
		t.Error("There are no files")
	}
}

// Whatever a request has, each of its alternatives has, and nothing but a rank
// besides.
func TestSpreadKeepsTheRequest(t *testing.T) {
	content, err := os.ReadFile("testdata/spread/claim.yaml")
	if err != nil {
		t.Fatal(err)
	}
	claim := one(t, string(content)).(*resourceapi.ResourceClaim)
	exactly := claim.Spec.Devices.Requests[0].Exactly
	fields := reflect.ValueOf(*exactly)
	for n := range fields.NumField() {
		// Alpha, and off.
		if name := fields.Type().Field(n).Name; fields.Field(n).IsZero() && name != "DerivedAttributes" {
			t.Errorf("The claim has no %s, by which it could be seen to be kept", name)
		}
	}
	stored, _ := newPlacement(t, installation{}).admit(t, write{new: claim})
	spec := stored.(*resourceapi.ResourceClaim).Spec
	if len(spec.Devices.Requests[0].FirstAvailable) != gpu.MaxRanks+1 || gpu.MaxRanks+1 > resourceapi.FirstAvailableDeviceRequestMaxSize {
		t.Errorf("There are %d alternatives, for %d ranks, the API allows %d", len(spec.Devices.Requests[0].FirstAvailable), gpu.MaxRanks, resourceapi.FirstAvailableDeviceRequestMaxSize)
	}
	for n, alternative := range spec.Devices.Requests[0].FirstAvailable {
		rank := fmt.Sprintf("%s%d", gpu.CapacityRank, n+1)
		if n == gpu.MaxRanks {
			rank = "packed"
		} else if quantity := alternative.Capacity.Requests[resourceapi.QualifiedName(rank)]; quantity.String() != "1" {
			t.Errorf("Alternative %s asks for %s of %s, want 1", alternative.Name, quantity.String(), rank)
		}
		if alternative.Name != rank {
			t.Errorf("Alternative %d is called %s, want %s", n, alternative.Name, rank)
		}
		delete(alternative.Capacity.Requests, resourceapi.QualifiedName(rank))
		alternative.Name = ""
		var kept resourceapi.ExactDeviceRequest
		convert(t, alternative, &kept)
		kept.AdminAccess = exactly.AdminAccess
		if diff := cmp.Diff(*exactly, kept); diff != "" {
			t.Errorf("Alternative %s differs from the request (-want +got):\n%s", rank, diff)
		}
	}
	if diff := cmp.Diff(claim.Spec.Devices.Config, spec.Devices.Config); diff != "" {
		t.Errorf("The configuration has changed:\n%s", diff)
	}
	if diff := cmp.Diff(claim.Spec.Devices.Constraints, spec.Devices.Constraints); diff != "" {
		t.Errorf("The constraints have changed:\n%s", diff)
	}
}

// A request is copied as a whole. A field that an alternative cannot have would
// make the copy fail.
func TestAlternativesHaveTheFieldsOfARequest(t *testing.T) {
	fields := func(v any) (names []string) {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
		return names
	}
	possible := fields(resourceapi.DeviceSubRequest{})
	for _, name := range fields(resourceapi.ExactDeviceRequest{}) {
		if name != "adminAccess" && !slices.Contains(possible, name) {
			t.Errorf("An alternative cannot have %s: the policy must remove it, or refuse it", name)
		}
	}
}

func TestRanks(t *testing.T) {
	for value, want := range map[string][]string{
		"1": {"rank1", "packed"},
		"3": {"rank1", "rank2", "rank3", "packed"},
	} {
		stored, denied := newPlacement(t, set("spreadPolicy.ranks="+value)).admit(t, write{new: one(t, claim("spread", share))})
		if denied != "" {
			t.Fatalf("Denied: %s", denied)
		}
		var names []string
		for _, alternative := range stored.(*resourceapi.ResourceClaim).Spec.Devices.Requests[0].FirstAvailable {
			names = append(names, alternative.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("With %s ranks the alternatives are %v, want %v", value, names, want)
		}
	}
}

func one(t *testing.T, text string) runtime.Object {
	t.Helper()
	objects := decode(t, text)
	if len(objects) != 1 {
		t.Fatalf("There are %d objects, want 1:\n%s", len(objects), text)
	}
	return objects[0]
}

func convert(t *testing.T, from, to any) {
	t.Helper()
	text, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(to); err != nil {
		t.Fatal(err)
	}
}
