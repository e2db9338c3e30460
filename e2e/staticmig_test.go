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

	resourceapi "k8s.io/api/resource/v1"

	"github.com/memslice/memslice/e2e/harness"
)

// staticScenarios need GPUs of 80 GB that nobody offers for MIG.
func staticScenarios() []scenario {
	return []scenario{
		{gets: "one of the MIG instances that an administrator made, by its profile, and all are as they were afterwards", run: administratorsInstances},
		{gets: "two instances of one GPU in one claim, and each container the one that it names", run: twoOfOneGPU},
		{gets: "a GPU in shares again when the administrator has taken its instances away", run: backToShares},
		{gets: "the administrator's instances in the same order after a restart of the plugin", run: staticOrder}, // 19
	}
}

// administrator turns MIG mode on and makes instances of a GPU, until the scenario
// ends, and waits until they are published.
func (k *kit) administrator(uuid string, profiles ...string) []harness.Instance {
	k.Helper()
	k.afterward(func() error { return k.GPUs.Reset(k.ctx, uuid) })
	k.ok(k.GPUs.Do(k.ctx, "mig", "enable", "--gpu", uuid))
	for _, profile := range profiles {
		k.ok(k.GPUs.Do(k.ctx, "mig", "create", "--gpu", uuid, "--profile", profile))
	}
	made := k.instances(uuid)
	if len(made) != len(profiles) {
		k.Fatalf("GPU %s has the instances %+v, want %q", uuid, made, profiles)
	}
	k.published("the instances of GPU "+uuid, func(devices []harness.Device) string {
		var published []string
		for _, d := range devices {
			if d.GPU == uuid {
				published = append(published, d.UUID)
			}
		}
		for _, instance := range made {
			if !slices.Contains(published, instance.UUID) || len(published) != len(made) {
				return fmt.Sprintf("published are %q", published)
			}
		}
		return ""
	})
	return made
}

func (k *kit) instances(uuid string) []harness.Instance {
	k.Helper()
	instances, err := k.GPUs.Instances(k.ctx, uuid)
	k.ok(err)
	return instances
}

// unchanged checks that a GPU has the instances that it had.
func (k *kit) unchanged(uuid string, before []harness.Instance) {
	k.Helper()
	if now := k.instances(uuid); !slices.Equal(now, before) {
		k.Errorf("GPU %s has the instances %+v, before it had %+v", uuid, now, before)
	}
}

func administratorsInstances(k *kit) {
	uuid := k.gpus()[0]
	made := k.administrator(uuid, "3g.40gb", "1g.10gb", "1g.10gb")
	k.start("large", partition("gpu", "3g.40gb"))
	k.start("small", partition("gpu", "1g.10gb"))
	large, small := k.grant("large"), k.grant("small")
	k.sees(k.running("large"), mainContainer, large)
	k.sees(k.running("small"), mainContainer, small)
	if large.Device.UUID != made[slices.IndexFunc(made, func(i harness.Instance) bool { return i.Profile == "3g.40gb" })].UUID {
		k.Errorf("a claim for 3g.40gb got %+v of %+v", large.Device, made)
	}
	k.start("other", partition("gpu", "7g.80gb"))
	k.pending("other")
	// Nothing else is offered of it.
	k.start("share", share("gpu", "4Gi", onGPU(uuid)))
	k.pending("share")
	k.unchanged(uuid, made)
	k.remove("large")
	k.remove("small")
	k.unchanged(uuid, made)
	k.start("again", partition("gpu", "3g.40gb"))
	if again := k.grant("again"); again.Device != large.Device {
		k.Errorf("the next claim got %+v, given back was %+v", again.Device, large.Device)
	}
	k.running("again")
}

func twoOfOneGPU(k *kit) {
	gpus := k.gpus()
	// One each would not do: a third has two.
	k.administrator(gpus[0], "2g.20gb")
	k.administrator(gpus[1], "1g.10gb")
	k.administrator(gpus[2], "1g.10gb", "2g.20gb")
	devices := resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{partition("train", "2g.20gb"), partition("serve", "1g.10gb")},
		Constraints: []resourceapi.DeviceConstraint{{
			Requests: []string{"train", "serve"}, MatchAttribute: new(resourceapi.FullyQualifiedName(harness.DriverName + "/parentUUID")),
		}},
	}
	k.claimFrom("both", devices)
	k.create(newPod("a", []string{"both"},
		newContainer("trainer", one("both", "train")), newContainer("server", one("both", "serve")), newContainer("supervisor", all("both"))))
	pod, grants := k.running("a"), k.granted("both")
	train, serve := byRequest(k, grants, "train"), byRequest(k, grants, "serve")
	if train.Device.GPU != gpus[2] || serve.Device.GPU != gpus[2] {
		k.Errorf("they are of GPUs %s and %s, want both of %s", train.Device.GPU, serve.Device.GPU, gpus[2])
	}
	k.sees(pod, "trainer", train)
	k.sees(pod, "server", serve)
	k.sees(pod, "supervisor", train, serve)
}

func backToShares(k *kit) {
	uuid := k.gpus()[0]
	k.administrator(uuid, "7g.80gb")
	k.start("a", partition("gpu", "7g.80gb", onGPU(uuid)))
	k.running("a")
	k.remove("a")
	k.ok(k.GPUs.Do(k.ctx, "mig", "destroy", "--gpu", uuid, "--instance", "all"))
	k.ok(k.GPUs.Do(k.ctx, "mig", "disable", "--gpu", uuid))
	k.awaitForms(uuid, harness.TypeWhole, harness.TypeShare)
	k.start("b", share("gpu", "4Gi", onGPU(uuid)))
	k.sees(k.running("b"), mainContainer, k.grant("b"))
}

func staticOrder(k *kit) {
	k.administrator(k.gpus()[3], "1g.10gb", "3g.40gb", "2g.20gb")
	k.sameAfterRestart()
}

// sameAfterRestart checks that a new plugin publishes what the one before did, in
// the same order.
func (k *kit) sameAfterRestart() {
	k.Helper()
	before, err := k.Devices(k.ctx)
	k.ok(err)
	k.ok(k.RestartPlugin(k.ctx))
	k.ok(k.AwaitGPUs(k.ctx))
	if after, err := k.Devices(k.ctx); err != nil || !slices.Equal(after, before) {
		k.Errorf("after a restart %s are published, %v, before %s", names(after), err, names(before))
	}
}

func names(devices []harness.Device) string {
	var all []string
	for _, d := range devices {
		all = append(all, d.Name)
	}
	return strings.Join(all, " ")
}
