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
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/memslice/memslice/e2e/harness"
)

// isolationScenarios need two GPUs with a driver that limits cgroups.
func isolationScenarios() []scenario {
	return []scenario{
		{gets: "all of a share of 4Gi for its processes, and not one MiB more, whatever their environment says", containers: true, run: toTheByte}, // 1, 21
		{gets: "its memory beside a neighbour from another namespace who tries to take more, again and again", containers: true, run: neighbours},  // 3
		{gets: "one share for an init container and two containers, which have no more than that together", containers: true, run: together},
		{gets: "each container its own of two shares of one GPU, and both where it has both", containers: true, run: ownShares}, // 4
		{gets: "the amount granted of each of two GPUs, for one claim", containers: true, run: twoGPUs},
		{gets: "the limit again for a container that was started again", containers: true, run: startedAgain},
		{gets: "no container without its limit while the plugin is away, the reason, and the container once it is back", containers: true, run: pluginAway},
		{gets: "the limit again after somebody has lifted it, and an event that says so", containers: true, run: lifted},
		{gets: "what is granted, what holds it, that it was read back, and the peak, in the claim's status", containers: true, run: proof},
		{gets: "word of a pod that has more than it was granted where nothing holds it to that", containers: true, run: overUse},
		{gets: "an end to such a pod, where the node is configured for it", containers: true, run: eviction},
		{gets: "the name of a process that uses a shared GPU without a claim", run: foreign},
		{gets: "a pod's event with what the GPU offers, when its claim asks for another mechanism", run: otherMechanism},
		{gets: "no share without a mechanism, on a node that allows none", run: noneForbidden},
	}
}

// unenforcedScenarios need a driver that cannot limit cgroups.
func unenforcedScenarios() []scenario {
	return []scenario{
		{gets: "shares that say that nothing holds them, with a driver that cannot", run: unenforced},
		{gets: "no shares of GPUs on which nothing could hold them, where that is configured, and the reason on the node", run: nothingToShare},
	}
}

func toTheByte(k *kit) {
	for _, name := range []string{"fits", "more", "bare", "forks"} {
		k.claim(name, share("gpu", "4Gi"))
	}
	k.load("fits", "fits", "--allocate", allOf4Gi, "--hold", "forever")
	k.load("more", "more", "--allocate", "3841Mi")
	k.load("bare", "bare", "--unset", "--allocate", "3841Mi")
	k.load("forks", "forks", "--fork", "2", "--allocate", "2Gi", "--hold", "5s")
	k.holds("fits")
	for _, name := range []string{"more", "bare", "forks"} {
		k.refusedMemory(name)
	}
	pod := k.running("fits")
	k.refusedInside(pod, mainContainer, "--allocate", "1Mi")
	out, err := k.Exec(k.ctx, pod, mainContainer, "cudaload", "info")
	k.ok(err)
	k.Log(out)
}

func neighbours(k *kit) {
	uuid := k.gpus()[0]
	other := k.inNamespace(nil)
	k.claim("greedy", share("gpu", "4Gi", onGPU(uuid)))
	other.claim("modest", share("gpu", "30Gi", onGPU(uuid)))
	k.load("greedy", "greedy", "--loop", "--allocate", "70Gi", "--step", "512Mi")
	k.says("greedy", mainContainer, "out of memory")
	other.load("modest", "modest", "--allocate", "29Gi", "--step", "512Mi", "--hold", "forever")
	other.holds("modest")
	other.running("modest")
}

func together(k *kit) {
	k.claim("gpu", share("gpu", "4Gi"))
	claims := []corev1.ResourceClaim{all("gpu")}
	pod := newPod("pod", []string{"gpu"},
		loads("left", claims, "--allocate", "1792Mi", "--hold", "forever"),
		loads("right", claims, "--allocate", "1792Mi", "--hold", "forever"))
	pod.Spec.InitContainers = []corev1.Container{loads("init", claims, "--allocate", allOf4Gi, "--hold", "1s")}
	k.create(pod)
	k.says("pod", "init", "holding")
	k.says("pod", "left", "holding")
	k.says("pod", "right", "holding")
	// Each has half of it: what stops them is the limit of their pod.
	for _, container := range []string{"left", "right"} {
		k.refusedInside(k.running("pod"), container, "--allocate", "1Mi")
	}
}

func ownShares(k *kit) {
	uuid := k.gpus()[0]
	k.claim("gpu", share("small", "2Gi", onGPU(uuid)), share("large", "4Gi", onGPU(uuid)))
	k.create(newPod("pod", []string{"gpu"},
		newContainer("small", one("gpu", "small")), newContainer("large", one("gpu", "large")), newContainer("both", all("gpu"))))
	pod := k.running("pod")
	for name, amounts := range map[string]struct{ fits, more string }{
		"small": {"1792Mi", "1793Mi"}, "large": {allOf4Gi, "3841Mi"}, "both": {"5888Mi", "5889Mi"},
	} {
		k.allowedInside(pod, name, "--allocate", amounts.fits)
		k.refusedInside(pod, name, "--allocate", amounts.more)
	}
}

func twoGPUs(k *kit) {
	gpus := k.gpus()
	k.claim("gpu", share("a", "4Gi", onGPU(gpus[0])), share("b", "2Gi", onGPU(gpus[1])))
	k.create(newPod("pod", []string{"gpu"}, newContainer(mainContainer, all("gpu"))))
	pod := k.running("pod")
	fits, more := map[string]string{gpus[0]: allOf4Gi, gpus[1]: "1792Mi"}, map[string]string{gpus[0]: "3841Mi", gpus[1]: "1793Mi"}
	for _, uuid := range gpus[:2] {
		ordinal, err := k.Ordinal(k.ctx, pod, mainContainer, uuid)
		k.ok(err)
		k.allowedInside(pod, mainContainer, "--gpu", strconv.Itoa(ordinal), "--allocate", fits[uuid])
		k.refusedInside(pod, mainContainer, "--gpu", strconv.Itoa(ordinal), "--allocate", more[uuid])
	}
}

func startedAgain(k *kit) {
	k.start("pod", share("gpu", "4Gi"))
	before := k.running("pod")
	// The container's first process ends then, and this one with it.
	_, _ = k.Exec(k.ctx, before, mainContainer, "kill", "1")
	after, err := k.AwaitPod(k.ctx, k.ns, "pod", "have started again", func(pod *corev1.Pod) string {
		if harness.Ready(pod) && pod.Status.ContainerStatuses[0].RestartCount == 1 {
			return ""
		}
		return harness.Describe(pod)
	})
	k.ok(err)
	if was, is := containerOf(before), containerOf(after); was == is {
		k.Fatalf("it is the same container, %s", is)
	}
	k.allowedInside(after, mainContainer, "--allocate", allOf4Gi)
	k.refusedInside(after, mainContainer, "--allocate", "3841Mi")
}

func pluginAway(k *kit) {
	k.claim("gpu", share("gpu", "4Gi"))
	pod := newPod("pod", []string{"gpu"}, newContainer(mainContainer, all("gpu")))
	gate := newContainer("gate")
	gate.Command = []string{"sh", "-c", "until [ -e /tmp/go ]; do sleep 0.1; done"}
	pod.Spec.InitContainers = []corev1.Container{gate}
	k.create(pod)
	// Once a container of its runs, its claim is prepared.
	created, err := k.AwaitPod(k.ctx, k.ns, "pod", "run its init container", func(pod *corev1.Pod) string {
		if s := pod.Status.InitContainerStatuses; len(s) == 1 && s[0].State.Running != nil {
			return ""
		}
		return harness.Describe(pod)
	})
	k.ok(err)
	k.ok(k.StopPlugin(k.ctx))
	k.afterward(func() error { return k.StartPlugin(k.ctx) })
	_, err = k.Exec(k.ctx, created, "gate", "touch", "/tmp/go")
	k.ok(err)
	message, err := k.AwaitEvent(k.ctx, created, "Failed", "memslice", "does not answer")
	k.ok(err)
	k.Log(message)

	k.ok(k.StartPlugin(k.ctx))
	k.refusedInside(k.running("pod"), mainContainer, "--allocate", "3841Mi")
}

func lifted(k *kit) {
	k.start("pod", share("gpu", "4Gi"))
	pod, grant := k.running("pod"), k.grant("pod")
	k.refusedInside(pod, mainContainer, "--allocate", "3841Mi")
	k.ok(k.GPUs.Do(k.ctx, "limit", "clear", "--gpu", grant.Device.GPU, "--all"))
	k.podEvent("pod", "GPUMemoryLimitRestored", "4Gi")
	k.refusedInside(pod, mainContainer, "--allocate", "3841Mi")
}

func proof(k *kit) {
	k.claim("gpu", share("gpu", "4Gi", capacity("compute", "25")))
	k.load("pod", "gpu", "--allocate", "3Gi", "--hold", "forever")
	k.holds("pod")
	const gi = 1 << 30
	k.shareStatus("gpu", func(s harness.ShareStatus) string {
		switch {
		case s.MemoryBytes != 4*gi || s.ComputePercent != 25 || s.MemoryIsolation != "cgroup" || s.ComputeIsolation != "none":
			return fmt.Sprintf("it says %+v of what was granted", s)
		case len(s.Limits) != 1 || s.Limits[0].Bytes != 4*gi:
			return fmt.Sprintf("the limits read back are %+v", s.Limits)
		case s.PeakBytes != 3*gi+256<<20:
			return "the peak is not there yet"
		case s.Conditions["Ready"] != "True/Enforced" || s.Conditions["WithinGrant"][:4] != "True":
			return fmt.Sprintf("its conditions are %v", s.Conditions)
		}
		return ""
	})
}

func overUse(k *kit) {
	k.claimFrom("gpu", isolated("None", share("gpu", "4Gi")))
	k.load("pod", "gpu", "--allocate", "6Gi", "--hold", "forever")
	k.holds("pod")
	k.podEvent("pod", "GPUMemoryOverUse", "6400Mi", "4Gi", k.ns+"/gpu")
	k.shareStatus("gpu", func(s harness.ShareStatus) string {
		if s.Conditions["Ready"] != "True/NotEnforced" || s.Conditions["WithinGrant"] != "False/OverUse" {
			return fmt.Sprintf("its conditions are %v", s.Conditions)
		}
		return ""
	})
	k.ok(k.AwaitMetric(k.ctx, "memslice_claim_over_use{", `claim="gpu"`, fmt.Sprintf("namespace=%q", k.ns), "} 1"))
}

func eviction(k *kit) {
	k.configure(`
nodeConfig:
  defaults: {isolation: {onOverUse: Evict}}
`)
	k.claimFrom("gpu", isolated("None", share("gpu", "4Gi")))
	pod := k.load("pod", "gpu", "--allocate", "6Gi", "--hold", "forever")
	k.ok(k.AwaitGone(k.ctx, k.ns, "pod", pod.UID))
}

func foreign(k *kit) {
	// Somebody has to share the GPU.
	k.start("a", share("gpu", "4Gi"))
	k.running("a")
	uuid := k.grant("a").Device.GPU
	mark, pid := k.MarkLog(), strconv.Itoa(os.Getpid())
	k.ok(k.GPUs.Do(k.ctx, "process", "add", "--gpu", uuid, "--pid", pid, "--name", "stranger", "--memory", "3Gi"))
	k.afterward(func() error { return k.GPUs.Do(k.ctx, "process", "remove", "--gpu", uuid, "--pid", pid) })
	k.Log(k.problem(mark, uuid, "process "+pid, "3Gi"))
}

func otherMechanism(k *kit) {
	k.claimFrom("gpu", isolated("MPS", share("gpu", "4Gi")))
	pod := k.use("pod", "gpu")
	message, err := k.AwaitEvent(k.ctx, pod, "FailedPrepareDynamicResources", "isolation MPS is required", `offers "cgroup"`)
	k.ok(err)
	k.Log(message)
	k.remove("pod")
}

func noneForbidden(k *kit) {
	former := k.gpuMemory()
	k.configure(`
nodeConfig:
  defaults: {isolation: {required: true}, memory: {reserve: 1Gi}}
`)
	// That the rest of it is in force shows in the amount.
	k.published("shares of 1Gi less", func(devices []harness.Device) string {
		for _, d := range devices {
			if d.Type == harness.TypeShare && d.Memory >= former {
				return fmt.Sprintf("%s has %d bytes", d.Name, d.Memory)
			}
		}
		return ""
	})
	k.claimFrom("none", isolated("None", share("gpu", "4Gi")))
	pod := k.use("none", "none")
	message, err := k.AwaitEvent(k.ctx, pod, "FailedPrepareDynamicResources", "isolation None", "isolation.required")
	k.ok(err)
	k.Log(message)
	k.start("any", share("gpu", "4Gi"))
	k.running("any")
	k.remove("none")
}

// gpuMemory is what the first published share device has, in bytes.
func (k *kit) gpuMemory() int64 {
	k.Helper()
	devices, err := k.Devices(k.ctx)
	k.ok(err)
	for _, d := range devices {
		if d.Type == harness.TypeShare {
			return d.Memory
		}
	}
	k.Fatal("no share is published")
	return 0
}

func unenforced(k *kit) {
	enforced := matching(`device.attributes["gpu.memslice.dev"].memoryIsolation == "cgroup"`)
	k.start("insists", share("gpu", "4Gi", enforced))
	k.start("agrees", share("gpu", "4Gi", matching(`device.attributes["gpu.memslice.dev"].memoryIsolation == "none"`)))
	k.running("agrees")
	k.pending("insists")
	k.shareStatus("agrees", func(s harness.ShareStatus) string {
		if s.Conditions["Ready"] != "True/NotEnforced" || s.MemoryIsolation != "none" {
			return fmt.Sprintf("it is %+v", s)
		}
		return ""
	})
}

func nothingToShare(k *kit) {
	mark := k.MarkLog()
	k.configure(`
nodeConfig:
  defaults: {isolation: {required: true}}
`)
	for _, uuid := range k.gpus() {
		k.awaitForms(uuid, harness.TypeWhole)
	}
	k.problem(mark, "isolation.required", "R615")
	k.start("a", share("gpu", "4Gi"))
	k.pending("a")
}
