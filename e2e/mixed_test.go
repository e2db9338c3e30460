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

	resourceapi "k8s.io/api/resource/v1"

	"github.com/memslice/memslice/e2e/harness"
)

// mixedScenarios need an RTX 3090 and a T4 among other GPUs.
func mixedScenarios() []scenario {
	return []scenario{
		{gets: "the GPUs that the node has now, when others are put in", run: newGPUs},
		{gets: "a share of a GPU of the architecture that was asked for", run: byArchitecture},
		{gets: "as many shares of 2000Mi as fit a card, and not one more", run: exactFit}, // 2
		{gets: "the smallest card that is large enough, so that large ones stay free", run: smallestFirst},
	}
}

func newGPUs(k *kit) {
	devices, err := k.Devices(k.ctx)
	k.ok(err)
	var products []string
	for _, d := range devices {
		if d.Type == harness.TypeShare {
			products = append(products, d.Product)
		}
	}
	slices.Sort(products)
	want := []string{
		"NVIDIA A100-SXM4-40GB", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090", "NVIDIA H100 80GB HBM3", "NVIDIA L4", "Tesla T4",
	}
	if !slices.Equal(products, want) {
		k.Errorf("published are %q, want %q", products, want)
	}
}

func byArchitecture(k *kit) {
	for name, architecture := range map[string]string{"turing": "Turing", "hopper": "Hopper", "ada": "Ada Lovelace"} {
		k.start(name, share("gpu", "2Gi", matching(`device.attributes["gpu.memslice.dev"].architecture == "`+architecture+`"`)))
		grant := k.grant(name)
		if grant.Device.Architecture != architecture {
			k.Errorf("a claim for %s got %s (%s)", architecture, grant.Device.Product, grant.Device.Architecture)
		}
		k.sees(k.running(name), mainContainer, grant)
	}
}

func exactFit(k *kit) {
	devices, err := k.Devices(k.ctx)
	k.ok(err)
	at := slices.IndexFunc(devices, func(d harness.Device) bool {
		return d.Type == harness.TypeShare && d.Product == "NVIDIA GeForce RTX 3090"
	})
	if at < 0 {
		k.Fatalf("no RTX 3090 is published: %+v", devices)
	}
	const each = 2000 << 20
	card := matching(`device.attributes["gpu.memslice.dev"].uuid == "` + devices[at].GPU + `"`)
	var requests []resourceapi.DeviceRequest
	for i := range devices[at].Memory / each {
		requests = append(requests, share(fmt.Sprintf("r%d", i), "2000Mi", card))
	}
	k.Logf("%d bytes are %d shares", devices[at].Memory, len(requests))
	k.start("full", requests...)
	grants := k.granted("full")
	for _, grant := range grants {
		if grant.Memory != each {
			k.Errorf("request %s was granted %d bytes, want %d", grant.Request, grant.Memory, each)
		}
	}
	k.sees(k.running("full"), mainContainer, grants...)
	k.start("more", share("gpu", "2000Mi", card))
	k.pending("more")
}

func smallestFirst(k *kit) {
	k.start("small", share("gpu", "10Gi"))
	k.start("large", share("gpu", "30Gi"))
	small, large := k.grant("small"), k.grant("large")
	if small.Device.Product != "Tesla T4" || large.Device.Product != "NVIDIA A100-SXM4-40GB" {
		k.Errorf("10Gi went to %s and 30Gi to %s, want the T4 and the A100", small.Device.Product, large.Device.Product)
	}
	k.running("small")
	k.running("large")
}
