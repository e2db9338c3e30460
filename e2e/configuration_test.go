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
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/e2e/harness"
)

// configurationScenarios need eight GPUs of 80 GB.
func configurationScenarios() []scenario {
	return []scenario{
		{gets: "other amounts for new claims after the node's configuration was changed, while prepared ones stay", run: otherAmounts},
		{gets: "a form that is in use until the last claim to it has ended, and then what is configured instead", run: formInUse},
		{gets: "the former configuration when the file is wrong, and the field's path", run: wrongFile}, // 22
		{gets: "another configuration on a node with a label", run: labelledNode},
	}
}

func otherAmounts(k *kit) {
	k.start("old", share("gpu", "100Mi"))
	before, old := k.running("old"), k.grant("old")
	k.configure(`
nodeConfig:
  defaults:
    memory: {min: 1Gi, step: 512Mi, reserve: 2Gi}
`)
	// Of the 81043Mi that the driver leaves of an H100, 78995Mi less what is no
	// whole step from 1024Mi.
	const largest = 78848 << 20
	k.published("shares of 78848Mi at most", func(devices []harness.Device) string {
		for _, d := range devices {
			if d.Type == harness.TypeShare && d.Memory != largest {
				return fmt.Sprintf("%s has %d bytes", d.Name, d.Memory)
			}
		}
		return ""
	})
	amounts := map[string]struct {
		request string
		bytes   int64
	}{"least": {"100Mi", 1 << 30}, "stepped": {"1100Mi", 1536 << 20}, "largest": {"78848Mi", largest}}
	for name, amount := range amounts {
		k.start(name, share("gpu", amount.request))
	}
	for name, amount := range amounts {
		grant := k.grant(name)
		if grant.Memory != amount.bytes {
			k.Errorf("%s was granted %d bytes, want %d", amount.request, grant.Memory, amount.bytes)
		}
		k.sees(k.running(name), mainContainer, grant)
	}
	after := k.running("old")
	if was, is := containerOf(before), containerOf(after); was != is {
		k.Errorf("the pod's container was %s and is %s after the change", was, is)
	}
	k.sees(after, mainContainer, old)
	k.remove("old")
}

func formInUse(k *kit) {
	k.start("holder", share("gpu", "4Gi"))
	holder := k.grant("holder")
	uuid := holder.Device.GPU
	k.running("holder")

	mark := k.MarkLog()
	k.configure(`
nodeConfig:
  gpus:
  - match: {uuids: [%s]}
    offer: [GPU]
`, uuid)
	k.awaitForms(uuid, "slice draining")
	k.problem(mark, uuid, "have ended")
	k.start("late", share("gpu", "4Gi"))
	if late := k.grant("late"); late.Device.GPU == uuid {
		k.Errorf("a share went to GPU %s, which shall be given whole", uuid)
	}
	k.start("whole", whole("gpu", onGPU(uuid)))
	k.pending("whole")
	k.sees(k.running("holder"), mainContainer, holder)

	k.remove("holder")
	k.awaitForms(uuid, "gpu")
	k.sees(k.running("whole"), mainContainer, k.grant("whole"))
}

func wrongFile(k *kit) {
	before, err := k.Devices(k.ctx)
	k.ok(err)
	k.afterward(func() error { return k.Configure(k.ctx, k.config) })
	for _, wrong := range []struct{ what, text, path string }{
		{"a field that there is not", "defaults: {ofer: [GPU]}", "defaults.ofer"},
		{"a field in another case", "defaults: {Offer: [GPU]}", "defaults.Offer"},
		{"a field that is there twice", "defaults: {ranks: 1, ranks: 2}", "defaults.ranks"},
		{"a form that there is not", "defaults: {offer: [Mig]}", "defaults.offer[0]"},
		{"a value out of range", "gpus: [{match: {}, ranks: 9}]", "gpus[0].ranks"},
	} {
		mark := k.MarkLog()
		k.ok(k.ReplaceNodeConfig(k.ctx, "apiVersion: memslice.dev/v1alpha1\nkind: NodeConfig\n"+wrong.text+"\n"))
		k.Logf("%s: %s", wrong.what, k.problem(mark, wrong.path, "former"))
	}
	if now, err := k.Devices(k.ctx); err != nil || !slices.Equal(now, before) {
		k.Errorf("published are %+v, %v, and before the file was wrong %+v", now, err, before)
	}
	k.start("a", share("gpu", "4Gi"))
	k.sees(k.running("a"), mainContainer, k.grant("a"))
}

// problem waits until the plugin says what has the words, and returns it.
func (k *kit) problem(mark harness.LogMark, words ...string) string {
	k.Helper()
	problem, err := k.AwaitProblem(k.ctx, mark, words...)
	k.ok(err)
	if strings.Contains(problem, "%!") {
		k.Errorf("this is not fit to be read: %s", problem)
	}
	return problem
}

func labelledNode(k *kit) {
	k.configure(`
nodeConfigOverrides:
- nodeSelector: {matchLabels: {e2e.memslice.dev/pool: whole}}
  defaults: {offer: [GPU]}
`)
	label := func(value string) error {
		_, err := k.Client.CoreV1().Nodes().Patch(k.ctx, k.NodeName, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"e2e.memslice.dev/pool":`+value+`}}}`), metav1.PatchOptions{})
		return err
	}
	everywhere := func(want ...string) {
		for _, uuid := range k.gpus() {
			k.awaitForms(uuid, want...)
		}
	}
	everywhere(harness.TypeWhole, harness.TypeShare)
	k.afterward(func() error { return label("null") })
	k.ok(label(`"whole"`))
	everywhere(harness.TypeWhole)
	k.start("a", share("gpu", "4Gi"))
	k.pending("a")
	// That the other one is back without the label, every scenario's end shows.
}
