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
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/memslice/memslice/e2e/harness"
)

func demos() []demo {
	return []demo{
		{folder: "quickstart", promises: "three shares of 4Gi on one GPU, and a whole GPU", check: checkQuickstart},
		{folder: "whole-gpu", promises: "one whole GPU, and two for one container", check: checkWhole},
		{folder: "extended-resource", promises: "a whole GPU by resources.limits, without a claim", check: checkExtended},
		{folder: "mig-static", promises: "an administrator's MIG instances, one alone and two of one GPU", needs: harness.TypeMIG, check: checkStatic},
		{folder: "mig-dynamic", promises: "partitions made for claims, and a share, on GPUs that offer both", needs: harness.TypeMIG, check: checkDynamic},
		{folder: "prioritized-list", promises: "a partition of an H100, else 20Gi of anything", preset: "mixed", needs: harness.TypeMIG, check: checkPrioritized},
		{folder: "matched-pair", promises: "two cards of one model on one NUMA node", check: checkPair},
		{folder: "enforced", promises: "4Gi that one pod has and another cannot exceed", check: checkEnforced},
		{folder: "spread", promises: "pods that go round the GPUs", check: checkSpread},
	}
}

func checkQuickstart(k *kit) {
	shares := k.demoDeployment("shares", 3)
	pod, whole := k.demoPod("whole-gpu")
	k.sees(pod, mainContainer, whole...)
	for _, share := range shares {
		if share.Device.GPU != shares[0].Device.GPU || share.Memory != 4<<30 {
			k.Errorf("the shares are %+v, want 4Gi each of one GPU", shares)
		}
	}
	if len(whole) != 1 || whole[0].Device.Type != harness.TypeWhole || whole[0].Device.GPU == shares[0].Device.GPU {
		k.Errorf("the whole GPU is %+v, the shares %+v", whole, shares)
	}
}

func checkWhole(k *kit) {
	pod, one := k.demoPod("one")
	k.sees(pod, mainContainer, one...)
	pod, two := k.demoPod("two")
	k.sees(pod, mainContainer, two...)
	if got := kinds(append(one, two...)); len(one) != 1 || got[harness.TypeWhole] != 3 {
		k.Errorf("the pods got %+v and %+v, want one and two whole GPUs", one, two)
	}
}

func checkExtended(k *kit) {
	pod, grants := k.demoPod("classic")
	if len(grants) != 1 || grants[0].Device.Type != harness.TypeWhole {
		k.Fatalf("the pod got %+v, want a whole GPU", grants)
	}
	k.sees(pod, mainContainer, grants...)
}

func checkStatic(k *kit) {
	pod, small := k.demoPod("small")
	k.sees(pod, mainContainer, small...)
	pod, both := k.demoPod("both")
	k.sees(pod, "supervisor", both...)
	train, serve := byRequest(k, both, "train"), byRequest(k, both, "serve")
	k.sees(pod, "trainer", train)
	k.sees(pod, "server", serve)
	if train.Device.GPU != serve.Device.GPU || train.Device.Profile != "3g.40gb" || serve.Device.Profile != "1g.10gb" {
		k.Errorf("the pair is %+v and %+v, want two instances of one GPU", train, serve)
	}
}

func checkDynamic(k *kit) {
	small := k.demoDeployment("small", 3)
	pod, large := k.demoPod("large")
	k.sees(pod, mainContainer, large...)
	pod, share := k.demoPod("share")
	k.sees(pod, mainContainer, share...)
	got := kinds(append(append(small, large...), share...))
	if want := map[string]int{"1g.10gb": 3, "3g.40gb": 1, harness.TypeShare: 1}; !maps.Equal(got, want) {
		k.Errorf("the pods got %v, want %v", got, want)
	}
	for _, g := range append(small, large...) {
		if g.Device.GPU == share[0].Device.GPU {
			k.Errorf("GPU %s carries a share and the partition %s", g.Device.GPU, g.Device.Name)
		}
	}
}

func checkPrioritized(k *kit) {
	grants := k.demoDeployment("workers", 3)
	if got, want := kinds(grants), map[string]int{"3g.40gb": 2, harness.TypeShare: 1}; !maps.Equal(got, want) {
		k.Errorf("the pods got %v, want %v", got, want)
	}
	for _, g := range grants {
		if g.Device.Type == harness.TypeShare && g.Memory != 20<<30 {
			k.Errorf("the share is of %d bytes, want 20Gi", g.Memory)
		}
	}
}

func checkPair(k *kit) {
	state, err := k.GPUs.State(k.ctx)
	k.ok(err)
	numaNode := map[string]int{}
	for _, gpu := range state.GPUs {
		numaNode[gpu.UUID] = gpu.NUMANode
	}
	for _, name := range []string{"pair", "two-shares"} {
		pod, two := k.demoPod(name)
		k.sees(pod, mainContainer, two...)
		if len(two) != 2 || two[0].Device.GPU == two[1].Device.GPU || numaNode[two[0].Device.GPU] != numaNode[two[1].Device.GPU] {
			k.Errorf("pod %s got %+v, want two GPUs of one NUMA node of %v", name, two, numaNode)
		}
	}
}

func checkSpread(k *kit) {
	spread := map[string]int{}
	for _, g := range k.demoDeployment("spread", 16) {
		spread[g.Device.GPU]++
	}
	for _, uuid := range k.gpus() {
		if spread[uuid] != 2 {
			k.Errorf("the sixteen pods are on %v, want two on each GPU", spread)
		}
	}
	packed := k.demoDeployment("packed", 4)
	for _, g := range packed {
		if g.Device.GPU != packed[0].Device.GPU || g.Memory != 4<<30 {
			k.Errorf("the others got %+v, want 4Gi each of one GPU", packed)
		}
	}
}

func checkEnforced(k *kit) {
	for _, name := range []string{"fits", "greedy"} {
		if _, grants := k.demoPod(name); len(grants) != 1 || grants[0].Memory != 4<<30 {
			k.Errorf("pod %s got %+v, want 4Gi", name, grants)
		}
	}
	if k.Emulated {
		return
	}
	k.holds("fits")
	k.says("greedy", mainContainer, "out of memory", "allocated 3Gi beside a context of 256Mi")
	k.refusedInside(k.running("fits"), mainContainer, "--unset", "--allocate", "1Mi")
	claims, err := k.Client.ResourceV1().ResourceClaims(k.ns).List(k.ctx, metav1.ListOptions{})
	k.ok(err)
	for _, c := range claims.Items {
		k.shareStatus(c.Name, func(s harness.ShareStatus) string {
			if s.Conditions["Ready"] != "True/Enforced" || len(s.Limits) != 1 || s.Limits[0].Bytes != 4<<30 || s.PeakBytes < 3<<30 {
				return fmt.Sprintf("it is %+v", s)
			}
			return ""
		})
	}
}
