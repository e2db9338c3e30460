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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/memslice/memslice/e2e/harness"
)

// wholeScenarios need eight GPUs.
func wholeScenarios() []scenario {
	return []scenario{
		{gets: "a whole GPU on which no share is, and no share on a GPU that is taken whole", run: exclusion},
		{gets: "a whole GPU by its name under resources.limits, without a claim", run: extendedResource},
		{gets: "the GPUs of a pod that was deleted by force, as soon as its container has ended", containers: true, run: forceDeleted},
	}
}

func exclusion(k *kit) {
	k.start("share", share("gpu", "1Gi"))
	shared := k.grant("share")
	k.sees(k.running("share"), mainContainer, shared)

	k.start("seven", whole("gpus", count(7)))
	seven := k.granted("seven")
	if len(seven) != 7 {
		k.Fatalf("asked for seven whole GPUs, got %d", len(seven))
	}
	taken := map[string]bool{}
	for _, grant := range seven {
		taken[grant.Device.GPU] = true
	}
	if taken[shared.Device.GPU] || len(taken) != 7 {
		k.Errorf("the whole GPUs are %v, a share is on %s", taken, shared.Device.GPU)
	}
	k.sees(k.running("seven"), mainContainer, seven...)

	// The eighth GPU carries a share, which keeps it from being taken whole ...
	k.start("eighth", whole("gpu"))
	k.pending("eighth")
	// ... but not from carrying more shares.
	k.start("more", share("gpu", "1Gi"))
	if more := k.grant("more"); more.Device.GPU != shared.Device.GPU {
		k.Errorf("a share went to GPU %s, which is taken whole", more.Device.GPU)
	}
	k.running("more")
	k.remove("share")
	k.remove("more")
	eighth := k.grant("eighth")
	k.sees(k.running("eighth"), mainContainer, eighth)

	// Now all are taken whole, which keeps shares away until one is given back.
	k.start("late", share("gpu", "1Gi"))
	k.pending("late")
	k.remove("eighth")
	late := k.grant("late")
	if late.Device.GPU != eighth.Device.GPU {
		k.Errorf("the share went to GPU %s, given back was %s", late.Device.GPU, eighth.Device.GPU)
	}
	k.sees(k.running("late"), mainContainer, late)
}

func extendedResource(k *kit) {
	container := newContainer(mainContainer)
	container.Resources.Limits = corev1.ResourceList{harness.ExtendedName: resource.MustParse("1")}
	k.create(newPod("a", nil, container))
	pod := k.running("a")
	grants, err := k.PodGrants(k.ctx, pod)
	k.ok(err)
	if len(grants) != 1 || grants[0].Device.Type != harness.TypeWhole {
		k.Fatalf("the pod got %+v, want one whole GPU", grants)
	}
	k.sees(pod, mainContainer, grants[0])
}

// forceDeleted has the scheduler give GPUs away whose container still runs: it
// ignores SIGTERM, so the kubelet kills it a moment later.
func forceDeleted(k *kit) {
	k.start("first", whole("gpus", count(8)))
	k.running("first")
	k.start("second", whole("gpu"))
	k.pending("second")
	k.ok(k.Client.CoreV1().Pods(k.ns).Delete(k.ctx, "first", *metav1.NewDeleteOptions(0)))

	second := k.running("second")
	k.sees(second, mainContainer, k.grant("second"))
	events, err := k.Client.CoreV1().Events(k.ns).List(k.ctx, metav1.ListOptions{
		FieldSelector: "reason=FailedPrepareDynamicResources,involvedObject.uid=" + string(second.UID)})
	k.ok(err)
	for _, event := range events.Items {
		k.Errorf("the kubelet was sent away to come back a minute later: %s", event.Message)
	}
}
