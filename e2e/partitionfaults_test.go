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
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/memslice/memslice/e2e/harness"
)

// partitionFaultScenarios need four GPUs of 80 GB with every form.
func partitionFaultScenarios() []scenario {
	return []scenario{
		{gets: "a message when a partition cannot be made, nothing left of the attempt, and the partition once it can", run: makingFails},                 // 17
		{gets: "a partition, and one only, however far the plugin was with it when it was killed", run: killedWhileMaking},                                // 17
		{gets: "another's MIG instance left alone, and its place again once it is gone", run: strangersInstance},                                          // 17
		{gets: "the partition of a pod that was deleted by force while no plugin ran destroyed when one does", containers: true, run: forgottenPartition}, // 11, 17
		{gets: "a pod that ends while the driver is unloaded, and its partition's place again", run: endsWithoutDriver},                                   // 18
	}
}

func makingFails(k *kit) {
	uuid := k.gpus()[0]
	k.ok(k.GPUs.Do(k.ctx, "set", "gpu", uuid, "--fail", "createComputeInstance=INSUFFICIENT_RESOURCES"))
	k.afterward(func() error { return k.GPUs.Do(k.ctx, "set", "gpu", uuid, "--clear-failures") })
	claim := k.claim("gpu", partition("gpu", "1g.10gb", onGPU(uuid)))
	pod := k.use("early", "gpu")
	message, err := k.AwaitEvent(k.ctx, pod, "FailedPrepareDynamicResources", "1g.10gb", uuid)
	k.ok(err)
	k.Log(message)
	k.madeAre(uuid)
	if files, err := k.ClaimFiles(string(claim.UID)); err != nil || len(files) != 0 {
		k.Errorf("preparing failed and left %q, %v", files, err)
	}
	k.ok(k.GPUs.Do(k.ctx, "set", "gpu", uuid, "--clear-failures"))
	// The kubelet would try again in a minute; another pod makes it try now.
	k.use("late", "gpu")
	grant := k.grant("gpu")
	k.sees(k.running("late"), mainContainer, grant)
	k.madeAre(uuid, grant)
	k.remove("early")
	k.remove("late")
	k.madeAre(uuid)
}

func killedWhileMaking(k *kit) {
	for i, moment := range []struct {
		when string
		is   func(uid string) bool
	}{
		{when: "its intent is written", is: func(string) bool { return len(k.marks()) > 0 }},
		{when: "there is an instance", is: func(string) bool { return k.anyInstance() }},
		{when: "the container could start", is: func(uid string) bool { return len(k.specs(uid)) > 0 }},
	} {
		name, late := fmt.Sprintf("early-%d", i), fmt.Sprintf("late-%d", i)
		claim := k.claim(name, partition("gpu", "1g.10gb"))
		plugin, err := k.Plugin(k.ctx)
		k.ok(err)
		k.use(name, name)
		k.at("when "+moment.when, func() bool { return moment.is(string(claim.UID)) })
		k.ok(plugin.Kill())
		k.ok(plugin.AwaitNext(k.ctx))
		k.use(late, name)
		grant := k.grant(name)
		k.sees(k.running(late), mainContainer, grant)
		k.madeAre(grant.Device.GPU, grant)
		k.remove(name)
		k.remove(late)
		k.madeAre(grant.Device.GPU)
		if marks := k.marks(); len(marks) != 0 {
			k.Errorf("killed when %s: marks of instances are left: %q", moment.when, marks)
		}
	}
}

// at returns as soon as something is the case, within the blink of an eye.
func (k *kit) at(what string, is func() bool) {
	k.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			k.Fatalf("gave up waiting for the moment %s", what)
		}
	}
}

// marks are the plugin's files about the instances that it makes.
func (k *kit) marks() []string {
	k.Helper()
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(k.StateDir()), "partitions", "GPU-*"))
	k.ok(err)
	return paths
}

func (k *kit) anyInstance() bool {
	k.Helper()
	there, err := k.GPUs.AnyInstance()
	k.ok(err)
	return there
}

// specs are the CDI specs of a claim.
func (k *kit) specs(uid string) []string {
	k.Helper()
	paths, err := filepath.Glob(filepath.Join(k.CDIDir, "*"+uid+"*"))
	k.ok(err)
	return paths
}

func strangersInstance(k *kit) {
	uuid := k.gpus()[0]
	k.afterward(func() error { return k.GPUs.Reset(k.ctx, uuid) })
	k.ok(k.GPUs.Do(k.ctx, "mig", "enable", "--gpu", uuid))
	k.ok(k.GPUs.Do(k.ctx, "mig", "create", "--gpu", uuid, "--profile", "3g.40gb", "--start", "4"))
	before := k.instances(uuid)
	mark := k.MarkLog()
	k.awaitForms(uuid, "gpu occupied", "mig", "mig occupied", "slice occupied")
	k.problem(mark, uuid, "3g.40gb", "is not memslice's")
	devices, err := k.Devices(k.ctx)
	k.ok(err)
	for _, d := range devices {
		for free, start := range map[string]int{"3g.40gb": 0, "4g.40gb": 0, "1g.10gb": 3, "2g.20gb": 2} {
			if d.UUID == fmt.Sprintf("%s/%s/%d", uuid, free, start) && d.Taints != "" {
				k.Errorf("%s is withheld, which does not overlap the instance", d.Name)
			}
		}
	}
	k.start("share", share("gpu", "4Gi", onGPU(uuid)))
	k.pending("share")
	k.start("beside", partition("gpu", "3g.40gb", onGPU(uuid)))
	beside := k.grant("beside")
	k.sees(k.running("beside"), mainContainer, beside)
	k.start("none", partition("gpu", "3g.40gb", onGPU(uuid)))
	k.pending("none")
	k.remove("none")
	k.remove("beside")
	k.unchanged(uuid, before)

	k.ok(k.GPUs.Do(k.ctx, "mig", "destroy", "--gpu", uuid, "--instance", "all"))
	k.awaitForms(uuid, allForms...)
	k.sees(k.running("share"), mainContainer, k.grant("share"))
}

func forgottenPartition(k *kit) {
	claim := k.claim("a", partition("gpu", "1g.10gb"))
	k.use("a", "a")
	k.running("a")
	grant := k.grant("a")
	k.afterward(func() error { return k.StartPlugin(k.ctx) })
	k.ok(k.StopPlugin(k.ctx))
	k.ok(k.Client.CoreV1().Pods(k.ns).Delete(k.ctx, "a", *metav1.NewDeleteOptions(0)))
	k.ok(k.Client.ResourceV1().ResourceClaims(k.ns).Delete(k.ctx, "a", metav1.DeleteOptions{}))
	k.madeAre(grant.Device.GPU, grant)

	k.ok(k.StartPlugin(k.ctx))
	k.ok(harness.Await(k.ctx, "the partition to be destroyed", func(context.Context) (string, error) {
		return strings.Join(append(k.made(grant.Device.GPU), k.marks()...), " "), nil
	}))
	if files, err := k.ClaimFiles(string(claim.UID)); err != nil || len(files) != 0 {
		k.Errorf("files of the claim are left on the node: %q, %v", files, err)
	}
	k.start("b", partition("gpu", "7g.80gb", onGPU(grant.Device.GPU)))
	k.sees(k.running("b"), mainContainer, k.grant("b"))
}

func endsWithoutDriver(k *kit) {
	uuid := k.gpus()[0]
	k.start("a", partition("gpu", "1g.10gb", onGPU(uuid)))
	k.running("a")
	k.ok(k.GPUs.Do(k.ctx, "unload"))
	k.afterward(func() error { return k.GPUs.Do(k.ctx, "load") })
	k.awaitForms(uuid, "gpu unavailable", "mig unavailable", "slice unavailable")
	k.remove("a")
	k.ok(k.GPUs.Do(k.ctx, "load"))
	k.awaitForms(uuid, allForms...)
	k.start("b", partition("gpu", "7g.80gb", onGPU(uuid)))
	grant := k.grant("b")
	k.sees(k.running("b"), mainContainer, grant)
	k.madeAre(uuid, grant)
	k.ok(harness.Await(k.ctx, "the mark of the first partition to go", func(context.Context) (string, error) {
		if marks := k.marks(); len(marks) != 1 {
			return strings.Join(marks, " "), nil
		}
		return "", nil
	}))
}
