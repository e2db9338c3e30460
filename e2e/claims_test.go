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
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/memslice/memslice/e2e/harness"
)

func claimScenarios() []scenario {
	return []scenario{
		{gets: "two containers with one request each of one claim, on the same GPU, each with its own amount", run: requestPerContainer}, // 4
		{gets: "one container with two shares of a GPU, told of each", run: twoShares},
		{gets: "one claim shared by two pods, kept until the second is gone", run: sharedClaim},
		{gets: "the second choice where the first fits no GPU", run: firstAvailable},
		{gets: "an administrator's look at a GPU that is in use, which costs nobody anything", run: adminAccess},
		{gets: "a claim with another driver's device in it, of which memslice leaves the other alone", run: otherDriver}, // 5
	}
}

// byRequest finds the grant of a request.
func byRequest(t testing.TB, grants []harness.Grant, request string) harness.Grant {
	t.Helper()
	at := slices.IndexFunc(grants, func(g harness.Grant) bool { return g.Request == request })
	if at < 0 {
		t.Fatalf("request %q got nothing: %+v", request, grants)
	}
	return grants[at]
}

func requestPerContainer(k *kit) {
	k.claim("both", share("train", "10Gi"), share("serve", "6Gi"))
	k.create(newPod("a", []string{"both"}, newContainer("trainer", one("both", "train")), newContainer("server", one("both", "serve"))))
	pod, grants := k.running("a"), k.granted("both")
	train, serve := byRequest(k, grants, "train"), byRequest(k, grants, "serve")
	if train.Device.GPU != serve.Device.GPU || train.ShareID == serve.ShareID {
		k.Errorf("want two shares of one GPU, got %+v and %+v", train, serve)
	}
	k.sees(pod, "trainer", train)
	k.sees(pod, "server", serve)
}

func twoShares(k *kit) {
	k.start("a", share("model", "10Gi"), share("cache", "2Gi"))
	pod, grants := k.running("a"), k.granted("a")
	view := k.sees(pod, mainContainer, grants...)
	if value, ok := view.Env[plainVariable]; ok {
		k.Errorf("%s=%q is ambiguous where a claim has two shares", plainVariable, value)
	}
}

func sharedClaim(k *kit) {
	claim := k.claim("shared", share("gpu", "12Gi"))
	k.use("a", "shared")
	k.use("b", "shared")
	a, b, grant := k.running("a"), k.running("b"), k.grant("shared")
	k.sees(a, mainContainer, grant)
	k.sees(b, mainContainer, grant)

	k.remove("a")
	k.sees(k.running("b"), mainContainer, grant)
	if files, err := k.ClaimFiles(string(claim.UID)); err != nil || len(files) == 0 {
		k.Errorf("the claim was given up while pod b uses it: files %q, %v", files, err)
	}
	k.remove("b")
	if files, err := k.ClaimFiles(string(claim.UID)); err != nil || len(files) != 0 {
		k.Errorf("the claim is still prepared although no pod is left: files %q, %v", files, err)
	}
}

func firstAvailable(k *kit) {
	choice := func(name, memory string) resourceapi.DeviceSubRequest {
		return resourceapi.DeviceSubRequest{
			Name: name, DeviceClassName: harness.ShareClass,
			Capacity: &resourceapi.CapacityRequirements{
				Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)},
			},
		}
	}
	k.start("a", resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{
		choice("huge", "500Gi"), choice("modest", "8Gi"),
	}})
	pod, grant := k.running("a"), k.grant("a")
	if grant.Request != "gpu/modest" || grant.Memory != 8<<30 {
		k.Errorf("it got %+v, want 8Gi for gpu/modest", grant)
	}
	// Programs know the request by its own name, whichever choice was made.
	view := k.sees(pod, mainContainer, grant)
	if got := view.Env["MEMSLICE_MEMORY_BYTES_GPU"]; got != "8589934592" {
		k.Errorf("MEMSLICE_MEMORY_BYTES_GPU=%q, want 8589934592", got)
	}
}

func adminAccess(k *kit) {
	k.start("user", share("gpu", "70Gi"))
	used := k.grant("user")
	k.running("user")

	// The scheduler wants room for what is asked even of an administrator, so
	// this asks for the least.
	admin := k.inNamespace(map[string]string{resourceapi.DRAAdminNamespaceLabelKey: "true"})
	admin.start("monitor", share("gpu", "256Mi", asAdmin,
		matching(`device.attributes["gpu.memslice.dev"].uuid == "`+used.Device.GPU+`"`)))
	pod, grant := admin.running("monitor"), admin.grant("monitor")
	if !grant.Admin || grant.Device.GPU != used.Device.GPU {
		admin.Errorf("it got %+v, want administrator's access to GPU %s", grant, used.Device.GPU)
	}
	view, err := admin.Look(admin.ctx, pod, mainContainer)
	admin.ok(err)
	node, err := admin.GPUs.Node(admin.ctx, used.Device.GPU)
	admin.ok(err)
	if !slices.Equal(view.GPUNodes(), []string{node}) || view.Env[harness.UUIDVariable("gpu")] != used.Device.GPU {
		admin.Errorf("the container has the device nodes %q and %v, want %s and GPU %s", view.GPUNodes(), view.Env, node, used.Device.GPU)
	}

	// 147Mi are left after these, less than what the administrator asked for.
	k.start("neighbour", share("gpu", "9Gi"))
	if next := k.grant("neighbour"); next.Device.GPU != used.Device.GPU {
		k.Errorf("9Gi that are left of GPU %s went to %s: the administrator's access was charged", used.Device.GPU, next.Device.GPU)
	}
	k.running("neighbour")
}

func otherDriver(k *kit) {
	other := startOtherDriver(k)
	claim := k.claim("mixed", share("gpu", "4Gi"), exactly("nic", other.name))
	k.create(newPod("a", []string{"mixed"}, newContainer(mainContainer, corev1.ResourceClaim{Name: "mixed"})))
	pod, grant := k.running("a"), k.grant("mixed")
	k.sees(pod, mainContainer, grant)
	if !other.holds(claim.UID) {
		k.Error("the other driver was not asked to prepare the claim")
	}
	k.remove("a")
	if other.holds(claim.UID) {
		k.Error("the other driver was not asked to unprepare the claim")
	}
}
