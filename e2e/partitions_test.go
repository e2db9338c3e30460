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

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/memslice/memslice/e2e/harness"
)

// everyForm has each GPU offered in shares, whole and in partitions, whichever a
// claim asks for first; allForms is how that is published.
const everyForm = `
nodeConfig:
  defaults:
    offer: [Slice, GPU, MIG]
    mig: {mode: OnDemand}
`

var allForms = []string{harness.TypeWhole, harness.TypeMIG, harness.TypeShare}

// partitionScenarios need four GPUs of 80 GB with every form.
func partitionScenarios() []scenario {
	return []scenario{
		{gets: "a MIG partition by its profile, made for the claim where the scheduler has put it, and destroyed with it", run: madeForClaim},
		{gets: "partitions of several profiles on one GPU, in one claim, and each container the one that it names", run: mixedProfiles},
		{gets: "a pod that waits for a partition while a GPU is full of them", run: fullOfPartitions},
		{gets: "shares, the whole and partitions of one GPU, but never two of these forms at a time", run: formsExclude},
		{gets: "whole GPUs under resources.limits next to shares and partitions, and no GPU twice", run: extendedBeside},
		{gets: "the same devices in the same order after a restart of the plugin, while partitions are held", run: dynamicOrder}, // 19
		{gets: "partitions of the configured profiles only", run: narrowedProfiles},
	}
}

// made are the places of a GPU's instances, as devices name them.
func (k *kit) made(uuid string) []string {
	k.Helper()
	var places []string
	for _, i := range k.instances(uuid) {
		places = append(places, i.Place())
	}
	slices.Sort(places)
	return places
}

// madeAre checks that a GPU has just the instances of the grants.
func (k *kit) madeAre(uuid string, grants ...harness.Grant) {
	k.Helper()
	var want []string
	for _, g := range grants {
		want = append(want, g.Device.UUID)
	}
	slices.Sort(want)
	if got := k.made(uuid); !slices.Equal(got, want) {
		k.Errorf("GPU %s has the instances %q, want %q", uuid, got, want)
	}
}

func madeForClaim(k *kit) {
	claim := k.claim("a", partition("gpu", "2g.20gb"))
	k.use("a", "a")
	pod, grant := k.running("a"), k.grant("a")
	k.sees(pod, mainContainer, grant)
	k.madeAre(grant.Device.GPU, grant)
	first := k.instances(grant.Device.GPU)

	k.remove("a")
	k.madeAre(grant.Device.GPU)
	if files, err := k.ClaimFiles(string(claim.UID)); err != nil || len(files) != 0 {
		k.Errorf("files of the claim are left on the node: %q, %v", files, err)
	}
	k.start("b", partition("gpu", "2g.20gb"))
	next := k.grant("b")
	k.sees(k.running("b"), mainContainer, next)
	if second := k.instances(next.Device.GPU); len(second) != 1 || second[0].UUID == first[0].UUID {
		k.Errorf("the second claim has %+v, the first had %+v", second, first)
	}
}

func mixedProfiles(k *kit) {
	uuid := k.gpus()[0]
	var requests []resourceapi.DeviceRequest
	var containers []corev1.Container
	for _, p := range []struct{ request, profile string }{{"train", "3g.40gb"}, {"serve", "2g.20gb"}, {"probe", "1g.10gb"}, {"media", "1g.10gb+me"}} {
		requests = append(requests, partition(p.request, p.profile, onGPU(uuid)))
		containers = append(containers, newContainer(p.request, one("all", p.request)))
	}
	k.claim("all", requests...)
	k.create(newPod("a", []string{"all"}, append(containers, newContainer("supervisor", all("all")))...))
	pod, grants := k.running("a"), k.granted("all")
	for _, grant := range grants {
		k.sees(pod, grant.Request, grant)
	}
	k.sees(pod, "supervisor", grants...)
	k.madeAre(uuid, grants...)
	k.remove("a")
	k.madeAre(uuid)
}

func fullOfPartitions(k *kit) {
	uuid := k.gpus()[1]
	var requests []resourceapi.DeviceRequest
	for i := range 6 {
		requests = append(requests, partition(fmt.Sprintf("r%d", i), "1g.10gb", onGPU(uuid)))
	}
	k.start("six", requests...)
	k.start("seventh", partition("gpu", "1g.10gb", onGPU(uuid)))
	k.running("six")
	seventh := k.grant("seventh")
	k.sees(k.running("seventh"), mainContainer, seventh)
	k.madeAre(uuid, append(k.granted("six"), seventh)...)

	// One memory slice is left, and no compute slice.
	k.start("eighth", partition("gpu", "1g.10gb", onGPU(uuid)))
	k.pending("eighth")
	k.remove("seventh")
	k.sees(k.running("eighth"), mainContainer, k.grant("eighth"))
}

func formsExclude(k *kit) {
	uuid := k.gpus()[2]
	formsOf := []struct {
		name    string
		request resourceapi.DeviceRequest
	}{
		{"share", share("gpu", "4Gi", onGPU(uuid))},
		{"partition", partition("gpu", "1g.10gb", onGPU(uuid))},
		{"whole", whole("gpu", onGPU(uuid))},
		{"share", share("gpu", "4Gi", onGPU(uuid))},
	}
	for i, holder := range formsOf {
		name := fmt.Sprintf("%s-%d", holder.name, i)
		k.start(name, holder.request)
		grant := k.grant(name)
		k.sees(k.running(name), mainContainer, grant)
		if i == len(formsOf)-1 {
			break // it is the first again, after the others
		}
		for _, other := range formsOf[:3] {
			if other.name != holder.name {
				waiting := fmt.Sprintf("%s-%d", other.name, i)
				k.start(waiting, other.request)
				k.pending(waiting)
				k.remove(waiting)
			}
		}
		k.remove(name)
	}
}

func extendedBeside(k *kit) {
	k.start("share", share("gpu", "4Gi"))
	k.running("share")
	k.start("partition", partition("gpu", "1g.10gb"))
	k.running("partition")
	taken := []string{k.grant("share").Device.GPU, k.grant("partition").Device.GPU}

	want := func(name, count string) {
		container := newContainer(mainContainer)
		container.Resources.Limits = corev1.ResourceList{harness.ExtendedName: resource.MustParse(count)}
		k.create(newPod(name, nil, container))
	}
	want("two", "2")
	grants, err := k.PodGrants(k.ctx, k.running("two"))
	k.ok(err)
	for _, grant := range grants {
		if grant.Device.Type != harness.TypeWhole {
			k.Errorf("resources.limits gave %+v", grant.Device)
		}
		taken = append(taken, grant.Device.GPU)
	}
	if len(taken) != 4 || len(distinct(taken)) != 4 {
		k.Errorf("a share, a partition and two whole GPUs are on %q, want four GPUs", taken)
	}
	want("third", "1")
	k.pending("third")
	k.remove("partition")
	third := k.running("third")
	grants, err = k.PodGrants(k.ctx, third)
	k.ok(err)
	if len(grants) != 1 || grants[0].Device.GPU != taken[1] {
		k.Fatalf("the pod that waited got %+v, given back was GPU %s", grants, taken[1])
	}
	k.sees(third, mainContainer, grants[0])
}

func dynamicOrder(k *kit) {
	k.start("a", partition("gpu", "3g.40gb"))
	k.start("b", share("gpu", "4Gi"))
	k.running("a")
	k.running("b")
	k.sameAfterRestart()
	k.sees(k.running("a"), mainContainer, k.grant("a"))
}

func narrowedProfiles(k *kit) {
	k.configure(`
nodeConfig:
  defaults:
    offer: [MIG]
    mig: {mode: OnDemand, profiles: [1g.20gb, 3g.40gb]}
`)
	devices := k.published("partitions of two profiles", func(devices []harness.Device) string {
		for _, d := range devices {
			if d.Type != harness.TypeMIG || d.Profile != "1g.20gb" && d.Profile != "3g.40gb" {
				return "there is " + d.Name
			}
		}
		return ""
	})
	// The places are those of NVML: four and two on each of four GPUs.
	if len(devices) != 24 {
		k.Errorf("published are %d devices, want 24: %s", len(devices), names(devices))
	}
	k.start("a", partition("gpu", "3g.40gb"))
	k.sees(k.running("a"), mainContainer, k.grant("a"))
	k.start("b", partition("gpu", "1g.10gb"))
	k.pending("b")
}
