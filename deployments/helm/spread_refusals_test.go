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
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	share     = "{name: gpu, exactly: {deviceClassName: slice.memslice.dev, capacity: {requests: {memory: 4Gi}}}}"
	spread    = "memslice.dev/placement: spread"
	pack      = "memslice.dev/placement: pack"
	unlabeled = "app: x"
)

// claim is a ResourceClaim with that value of the label.
func claim(value string, requests ...string) string {
	return claimLabelled(fmt.Sprintf("memslice.dev/placement: %q", value), requests...)
}

func claimLabelled(label string, requests ...string) string {
	return fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, labels: {%s}}
spec: {devices: {requests: [%s]}}
`, label, strings.Join(requests, ", "))
}

// templated is a ResourceClaimTemplate with a label of its own and one for its
// claims.
func templated(label, claims string, requests ...string) string {
	return fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t, labels: {%s}}
spec:
  metadata: {labels: {%s}}
  spec: {devices: {requests: [%s]}}
`, label, claims, strings.Join(requests, ", "))
}

func TestSpreadRefusals(t *testing.T) {
	exactly := func(fields string) string {
		return "{name: gpu, exactly: {deviceClassName: slice.memslice.dev, " + fields + "}}"
	}
	const (
		prefix = "ResourceClaim c, label memslice.dev/placement: "
		late   = "it counts when the object is created and cannot change from '%s' to '%s' now: delete the object and create it anew"
	)
	for _, test := range []struct {
		name     string
		new, old string // old: empty for a CREATE
		values   []string
		denied   string // empty: allowed
	}{
		{name: "another value", new: claim("Spread", share), denied: prefix + "'Spread' is neither spread nor pack"},
		{name: "no value", new: claim("", share), denied: prefix + "'' is neither spread nor pack"},
		{name: "another value for a template's claims", new: templated(unlabeled, "memslice.dev/placement: even", share), denied: "ResourceClaimTemplate t, label memslice.dev/placement: 'even' is neither spread nor pack"},
		{name: "two values", new: templated(spread, pack, share), denied: "spread in metadata and pack in spec.metadata contradict each other: write one of them"},
		{name: "two requests", new: claim("spread", share, "{name: b, exactly: {deviceClassName: slice.memslice.dev}}"), denied: prefix + "spread is for one request and there are 2: write a claim for each, as a pod can use several, or leave the label out"},
		{name: "no requests", new: claim("spread"), denied: prefix + "spread is for one request and there are 0"},
		{name: "two requests of a template", new: templated(spread, unlabeled, share, "{name: b, exactly: {deviceClassName: slice.memslice.dev}}"), denied: "ResourceClaimTemplate t, label memslice.dev/placement: spread is for one request and there are 2"},
		{name: "two requests of a template's claims", new: templated(unlabeled, spread, share, "{name: b, exactly: {deviceClassName: slice.memslice.dev}}"), denied: "ResourceClaimTemplate t, label memslice.dev/placement: spread is for one request and there are 2"},
		{name: "alternatives", new: claim("spread", "{name: gpu, firstAvailable: [{name: large, deviceClassName: slice.memslice.dev}]}"), denied: prefix + "spread is not possible, request gpu has firstAvailable, which is what the label stands for: write exactly, or leave the label out"},
		{name: "alternatives with the last name only", new: claim("spread", "{name: gpu, firstAvailable: [{name: packed, deviceClassName: slice.memslice.dev}]}"), denied: "request gpu has firstAvailable"},
		{name: "alternatives in another order", new: claim("spread", alternatives("rank2", "rank1", "packed")), denied: "request gpu has firstAvailable"},
		{name: "alternatives without the last", new: claim("spread", alternatives("rank1", "rank2")), denied: "request gpu has firstAvailable"},
		{name: "alternatives without ranks", new: claim("spread", "{name: gpu, firstAvailable: [{name: rank1, deviceClassName: slice.memslice.dev}, {name: packed, deviceClassName: slice.memslice.dev}]}"), denied: "request gpu has firstAvailable"},
		{name: "alternatives of another class", new: claim("spread", strings.ReplaceAll(alternatives("rank1", "packed"), "slice.", "gpu.")), denied: "request gpu has firstAvailable"},
		{name: "nothing", new: claim("spread", "{name: gpu}"), denied: prefix + "spread is not possible, request gpu asks for nothing: write exactly"},
		{name: "another class", new: claim("spread", "{name: gpu, exactly: {deviceClassName: gpu.memslice.dev}}"), denied: prefix + "spread is not possible, request gpu is for class gpu.memslice.dev: only slice.memslice.dev can be spread; write that, or leave the label out"},
		{name: "a class of one's own", new: claim("spread", "{name: gpu, exactly: {deviceClassName: small}}"), denied: "is for class small: only slice.memslice.dev can be spread"},
		{name: "admin access", new: claim("spread", exactly("adminAccess: true")), denied: prefix + "spread is not possible, request gpu has adminAccess, which takes no share: leave the label out"},
		{name: "all devices", new: claim("spread", exactly("allocationMode: All")), denied: prefix + "spread is not possible, request gpu has allocationMode All: write ExactCount and a count, or leave the label out"},
		{name: "a rank", new: claim("spread", exactly("capacity: {requests: {memory: 4Gi, rank3: 1}}")), denied: prefix + "spread is not possible, request gpu asks for the capacity of a rank, as the label does: leave one of the two out"},
		{name: "no class is left", values: []string{"spreadPolicy.deviceClasses={small,large}"}, new: claim("spread", share), denied: "is for class slice.memslice.dev: only small and large can be spread"},

		{name: "label given later", new: claim("spread", share), old: claimLabelled(unlabeled, share), denied: prefix + fmt.Sprintf(late, "", "spread")},
		{name: "label changed", new: claim("spread", share), old: claim("pack", share), denied: prefix + fmt.Sprintf(late, "pack", "spread")},
		{name: "label taken away", new: claimLabelled(unlabeled, alternatives("rank1", "packed")), old: claim("spread", alternatives("rank1", "packed")), denied: prefix + fmt.Sprintf(late, "spread", "")},
		{name: "label given to a template later", new: templated(spread, unlabeled, share), old: templated(unlabeled, unlabeled, share), denied: "ResourceClaimTemplate t, label memslice.dev/placement: " + fmt.Sprintf(late, "", "spread")},

		{name: "a class of one's own that is listed", values: []string{"spreadPolicy.deviceClasses={slice.memslice.dev,small}"}, new: claim("spread", "{name: gpu, exactly: {deviceClassName: small}}")},
		{name: "pack of anything", new: claim("pack", share, "{name: all, exactly: {deviceClassName: gpu.memslice.dev, allocationMode: All}}")},
		{name: "pack of alternatives", new: claim("pack", alternatives("rank2", "packed"))},
		{name: "no label", new: claimLabelled(unlabeled, share, "{name: nic, exactly: {deviceClassName: nic.example.com}}")},
		{name: "expanded by hand", new: claim("spread", alternatives("rank1", "rank2", "packed"))},
		{name: "the same for both", new: templated(spread, spread, share)},
		{name: "another label later", new: strings.Replace(claim("spread", alternatives("rank1", "packed")), "labels: {", "labels: {a: b, ", 1), old: claim("spread", alternatives("rank1", "packed"))},
		{name: "older than the policy", new: claim("spread", share, share), old: claim("spread", share, share)},
		{name: "older than the policy, with a value of its own", new: claim("even", share), old: claim("even", share)},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := write{new: one(t, test.new)}
			if test.old != "" {
				w.old = one(t, test.old)
			}
			_, denied := newPlacement(t, set(test.values...)).admit(t, w)
			if test.denied == "" && denied != "" || !strings.Contains(denied, test.denied) {
				t.Errorf("Denied with %q, want %q", denied, test.denied)
			}
		})
	}
}

// What is stored cannot change: nothing is expanded that is there already.
func TestNothingStoredIsExpanded(t *testing.T) {
	placement := newPlacement(t, installation{})
	for name, text := range map[string]string{
		"claim":    claim("spread", share),
		"template": templated(spread, spread, share),
	} {
		object := one(t, text)
		if stored, denied := placement.admit(t, write{new: object, old: object.DeepCopyObject()}); denied != "" || !cmp.Equal(object, stored) {
			t.Errorf("%s: %s %s", name, denied, cmp.Diff(object, stored))
		}
	}
}

// Between the installation of the two policies nothing is packed in silence.
func TestSpreadWithoutTheMutation(t *testing.T) {
	placement := newPlacement(t, installation{})
	for name, object := range map[string]runtime.Object{
		"claim":    one(t, claim("spread", share)),
		"template": one(t, templated(spread, unlabeled, share)),
	} {
		if denied := placement.policy.review(t, write{new: object}); !strings.Contains(denied, "MutatingAdmissionPolicy memslice-spread is not in force") {
			t.Errorf("%s: denied with %q", name, denied)
		}
	}
}

// alternatives are what the policy writes, shortened.
func alternatives(names ...string) string {
	var list []string
	for _, name := range names {
		capacity := ""
		if name != "packed" {
			capacity = ", capacity: {requests: {" + name + ": 1}}"
		}
		list = append(list, "{name: "+name+", deviceClassName: slice.memslice.dev"+capacity+"}")
	}
	return "{name: gpu, firstAvailable: [" + strings.Join(list, ", ") + "]}"
}
