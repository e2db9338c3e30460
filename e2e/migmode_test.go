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
	"github.com/memslice/memslice/e2e/harness"
)

// modeScenarios need eight GPUs of 80 GB, Hopper or newer.
func modeScenarios() []scenario {
	return []scenario{
		{gets: "partitions of a GPU that is configured for them, whose MIG mode memslice turns on", run: modeTurnedOn},
		{gets: "partitions of such a GPU once the last share of it has been given back, and shares of others meanwhile", run: modeAfterLastShare},
		{gets: "the name of the process that is in the way of MIG mode, and partitions once it has ended", run: modeInTheWay},
		{gets: "partitions where an administrator turns MIG mode on, and shares where it is off", run: modeKept},
	}
}

// forPartitions configures one GPU for partitions alone, and has it as it was when
// the scenario ends.
func (k *kit) forPartitions(uuid string) harness.LogMark {
	k.Helper()
	k.afterward(func() error { return k.GPUs.Reset(k.ctx, uuid) })
	mark := k.MarkLog()
	k.configure(`
nodeConfig:
  gpus:
  - match: {uuids: [%s]}
    offer: [MIG]
    mig: {mode: Enabled}
`, uuid)
	return mark
}

func modeTurnedOn(k *kit) {
	uuid := k.gpus()[0]
	k.forPartitions(uuid)
	k.awaitForms(uuid, harness.TypeMIG)
	k.start("a", partition("gpu", "4g.40gb"))
	grant := k.grant("a")
	k.sees(k.running("a"), mainContainer, grant)
	k.madeAre(uuid, grant)
	// The others go on as before.
	k.start("b", share("gpu", "4Gi"))
	k.sees(k.running("b"), mainContainer, k.grant("b"))
	k.remove("a")
	k.madeAre(uuid)
}

func modeAfterLastShare(k *kit) {
	uuid := k.gpus()[1]
	k.start("holder", share("gpu", "4Gi", onGPU(uuid)))
	k.running("holder")
	mark := k.forPartitions(uuid)
	k.awaitForms(uuid, "slice draining")
	k.problem(mark, uuid, "have ended")
	k.start("waits", partition("gpu", "7g.80gb"))
	k.pending("waits")
	k.sees(k.running("holder"), mainContainer, k.grant("holder"))
	k.remove("holder")
	k.awaitForms(uuid, harness.TypeMIG)
	k.sees(k.running("waits"), mainContainer, k.grant("waits"))
}

func modeInTheWay(k *kit) {
	uuid := k.gpus()[2]
	k.ok(k.GPUs.Do(k.ctx, "process", "add", "--gpu", uuid, "--pid", "4711", "--name", "dcgm-exporter"))
	mark := k.forPartitions(uuid)
	k.Log(k.problem(mark, uuid, "dcgm-exporter"))
	k.ok(k.GPUs.Do(k.ctx, "process", "remove", "--gpu", uuid, "--pid", "4711"))
	k.awaitForms(uuid, harness.TypeMIG)
}

func modeKept(k *kit) {
	uuid := k.gpus()[3]
	k.afterward(func() error { return k.GPUs.Reset(k.ctx, uuid) })
	k.configure(`
nodeConfig:
  gpus:
  - match: {uuids: [%s]}
    offer: [Slice, GPU, MIG]
    mig: {profiles: [1g.10gb]}
`, uuid)
	k.start("a", share("gpu", "4Gi", onGPU(uuid)))
	k.sees(k.running("a"), mainContainer, k.grant("a"))
	k.remove("a")
	k.ok(k.GPUs.Do(k.ctx, "mig", "enable", "--gpu", uuid))
	k.awaitForms(uuid, harness.TypeMIG)
	k.start("b", partition("gpu", "1g.10gb"))
	k.sees(k.running("b"), mainContainer, k.grant("b"))
}

// ampereScenarios need two A100 80 GB.
func ampereScenarios() []scenario {
	return []scenario{
		{gets: "a word that a GPU has to be reset for MIG mode, and partitions after that", run: modeNeedsReset},
		{gets: "shares of a GPU that cannot change its mode on demand, and a word why there are no partitions", run: notOnDemand},
	}
}

func modeNeedsReset(k *kit) {
	uuid := k.gpus()[0]
	mark := k.forPartitions(uuid)
	k.Log(k.problem(mark, uuid, "--gpu-reset"))
	k.ok(k.GPUs.Do(k.ctx, "reset", "--gpu", uuid))
	k.awaitForms(uuid, harness.TypeMIG)
	k.start("a", partition("gpu", "1g.10gb"))
	k.sees(k.running("a"), mainContainer, k.grant("a"))
}

func notOnDemand(k *kit) {
	uuid := k.gpus()[1]
	mark := k.MarkLog()
	k.configure(everyForm)
	k.Log(k.problem(mark, uuid, "OnDemand"))
	k.awaitForms(uuid, harness.TypeWhole, harness.TypeShare)
	k.start("a", share("gpu", "4Gi", onGPU(uuid)))
	k.sees(k.running("a"), mainContainer, k.grant("a"))
}
