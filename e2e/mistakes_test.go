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
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/memslice/memslice/e2e/harness"
)

func mistakeScenarios() []scenario {
	return []scenario{
		{gets: "a pod that waits, and says so, when it asks for more than any GPU has, while others go on", run: tooLarge},
		{gets: "the name of the field, as the pod's event, when a claim's configuration is wrong", run: wrongConfiguration}, // 22
		{gets: "the name of the device node, as the pod's event, when it is missing, and the device once it is back", run: missingNode},
	}
}

func tooLarge(k *kit) {
	k.start("huge", share("gpu", "500Gi"))
	k.pending("huge")
	k.start("modest", share("gpu", "4Gi"))
	k.sees(k.running("modest"), mainContainer, k.grant("modest"))
	k.pending("huge")
}

func wrongConfiguration(k *kit) {
	k.claimFrom("wrong", resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{share("gpu", "4Gi")},
		Config: []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver:     harness.DriverName,
				Parameters: runtime.RawExtension{Raw: []byte(`{"apiVersion":"memslice.dev/v1alpha1","kind":"ShareConfig","isolatoin":"None"}`)},
			},
		}}},
	})
	pod := k.use("wrong", "wrong")
	message, err := k.AwaitEvent(k.ctx, pod, "FailedPrepareDynamicResources", "isolatoin")
	k.ok(err)
	k.Log(message)
	k.start("right", share("gpu", "4Gi"))
	k.running("right")
	// Ending it must not depend on its having been prepared.
	k.remove("wrong")
}

func missingNode(k *kit) {
	claim := k.claim("gpu", share("gpu", "4Gi"))
	devices, err := k.Devices(k.ctx)
	k.ok(err)
	// The first published is the one that the scheduler takes.
	node, err := k.GPUs.Node(k.ctx, devices[0].GPU)
	k.ok(err)
	k.ok(os.Remove(filepath.Join(k.GPUs.Root(), node)))
	k.afterward(func() error { return k.GPUs.Ensure(k.ctx, "", 0) })

	pod := k.use("early", "gpu")
	message, err := k.AwaitEvent(k.ctx, pod, "FailedPrepareDynamicResources", node)
	k.ok(err)
	k.Log(message)
	if grant := k.grant("gpu"); grant.Device.GPU != devices[0].GPU {
		k.Fatalf("the claim got GPU %s, whose device node is not the one that was removed", grant.Device.GPU)
	}
	if files, err := k.ClaimFiles(string(claim.UID)); err != nil || len(files) != 0 {
		k.Errorf("preparing failed and left %q, %v", files, err)
	}

	k.ok(k.GPUs.Ensure(k.ctx, "", 0))
	// The kubelet would try again in a minute; another pod makes it try now.
	k.use("late", "gpu")
	k.sees(k.running("late"), mainContainer, k.grant("gpu"))
}
