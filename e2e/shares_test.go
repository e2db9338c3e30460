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
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/memslice/memslice/e2e/harness"
)

// shareScenarios need eight GPUs of 80 GB. CASES numbers are those of the faults
// that the scenario guards against.
func shareScenarios() []scenario {
	return []scenario{
		{gets: "4Gi of any GPU from a template, and the container finds its bytes, device node and metadata", run: shareFromTemplate},
		{gets: "16Gi, 0.5Gi, 4G, 1e9, 4096Mi and 100Mi each granted to the byte", run: everyNotation}, // 1
		{gets: "eight 9Gi shares fill one GPU, the ninth goes to the next", run: ninthShare},
		{gets: "a share larger than what is left goes to another GPU, a smaller one still fits", run: largerThanLeft},
		{gets: "two namespaces share one GPU, each with its own amount", run: twoNamespaces}, // 3
		{gets: "a share of which no amount was asked has the whole memory of its GPU", run: noAmount},
		{gets: "10Gi and a quarter of the multiprocessors, told to the container, and four of these fill a GPU's compute", run: compute},
		{gets: "GPUs filled in the published order, which a restart of the plugin does not change", run: order}, // 19
		{gets: "a deleted pod's memory back, and nothing of it left on the node", run: deletion},
	}
}

func shareFromTemplate(k *kit) {
	_, err := k.Client.ResourceV1().ResourceClaimTemplates(k.ns).Create(k.ctx, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "small"},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{
			Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{share("gpu", "4Gi")}},
		}},
	}, metav1.CreateOptions{})
	k.ok(err)
	pod := newPod("a", []string{"mine"}, newContainer(mainContainer, all("mine")), newContainer("without"))
	template := "small"
	pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "mine", ResourceClaimTemplateName: &template}
	k.create(pod)

	pod = k.running("a")
	grants, err := k.PodGrants(k.ctx, pod)
	k.ok(err)
	if len(grants) != 1 || grants[0].Memory != 4<<30 || grants[0].ShareID == "" {
		k.Fatalf("the claim got %+v, want one share of 4Gi", grants)
	}
	view := k.sees(pod, mainContainer, grants[0])
	if got := view.Env[plainVariable]; got != "4294967296" {
		k.Errorf("%s=%q, want 4294967296", plainVariable, got)
	}
	if view := k.sees(pod, "without"); len(view.DeviceNodes) != 0 {
		k.Errorf("a container that uses no claim has the device nodes %q", view.DeviceNodes)
	}
}

func everyNotation(k *kit) {
	// What a notation comes to: whole Mi, and at least 256 of them.
	amounts := []struct {
		request, amount string
		bytes           int64
	}{
		{"binary", "16Gi", 16 << 30},
		{"fraction", "0.5Gi", 512 << 20},
		{"decimal", "4G", 3815 << 20},
		{"exponent", "1e9", 954 << 20},
		{"many", "4096Mi", 4 << 30},
		{"too-few", "100Mi", 256 << 20},
	}
	var requests []resourceapi.DeviceRequest
	var containers []corev1.Container
	for _, a := range amounts {
		requests = append(requests, share(a.request, a.amount))
		containers = append(containers, newContainer(a.request, one("all", a.request)))
	}
	k.claim("all", requests...)
	k.create(newPod("a", []string{"all"}, containers...))

	pod := k.running("a")
	grants := k.granted("all")
	for _, a := range amounts {
		at := slices.IndexFunc(grants, func(g harness.Grant) bool { return g.Request == a.request })
		if at < 0 {
			k.Fatalf("request %s got nothing: %+v", a.request, grants)
		}
		if grants[at].Memory != a.bytes {
			k.Errorf("%s was granted %d bytes, want %d", a.amount, grants[at].Memory, a.bytes)
		}
		k.sees(pod, a.request, grants[at])
	}
}

// share9Gi is a share of which a GPU of 80 GB takes eight.
func share9Gi() resourceapi.DeviceRequest { return share("gpu", "9Gi") }

func ninthShare(k *kit) {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
	for _, name := range names {
		k.start(name, share9Gi())
	}
	onGPU := map[string]int{}
	for _, name := range names {
		pod := k.running(name)
		grant := k.grant(name)
		onGPU[grant.Device.GPU]++
		k.sees(pod, mainContainer, grant)
	}
	counts := []int{}
	for _, n := range onGPU {
		counts = append(counts, n)
	}
	if slices.Sort(counts); !slices.Equal(counts, []int{1, 8}) {
		k.Errorf("shares by GPU: %v, want eight on one and one on another", onGPU)
	}
}

func largerThanLeft(k *kit) {
	k.start("first", share("gpu", "50Gi"))
	first := k.grant("first")
	k.start("larger", share("gpu", "40Gi"))
	larger := k.grant("larger")
	k.start("smaller", share("gpu", "20Gi"))
	smaller := k.grant("smaller")
	if larger.Device.GPU == first.Device.GPU {
		k.Errorf("40Gi went to GPU %s, of which 50Gi of %d bytes are taken", larger.Device.GPU, larger.Device.Memory)
	}
	if smaller.Device.GPU != first.Device.GPU {
		k.Errorf("20Gi did not go to the first GPU, where there is room for it")
	}
	k.sees(k.running("larger"), mainContainer, larger)
	k.sees(k.running("smaller"), mainContainer, smaller)
}

func twoNamespaces(k *kit) {
	other := k.inNamespace(nil)
	k.start("mine", share("gpu", "3Gi"))
	other.start("theirs", share("gpu", "5Gi"))
	mine, theirs := k.running("mine"), other.running("theirs")
	if a, b := k.grant("mine").Device.GPU, other.grant("theirs").Device.GPU; a != b {
		k.Errorf("they are on GPUs %s and %s", a, b)
	}
	k.sees(mine, mainContainer, k.grant("mine"))
	other.sees(theirs, mainContainer, other.grant("theirs"))
}

func noAmount(k *kit) {
	k.start("a", exactly("gpu", harness.ShareClass))
	pod, grant := k.running("a"), k.grant("a")
	if grant.Memory != grant.Device.Memory || grant.Memory == 0 {
		k.Errorf("it was granted %d bytes of the GPU's %d", grant.Memory, grant.Device.Memory)
	}
	k.sees(pod, mainContainer, grant)
	k.start("b", share("gpu", "256Mi"))
	if next := k.grant("b"); next.Device.GPU == grant.Device.GPU {
		k.Errorf("another share went to the same GPU")
	}
}

func compute(k *kit) {
	uuid := k.gpus()[0]
	quarter := share("gpu", "10Gi", capacity("compute", "25"), onGPU(uuid))
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		k.start(name, quarter)
	}
	for _, name := range names {
		view := k.sees(k.running(name), mainContainer, k.grant(name))
		if got := view.Env[computePrefix+"_GPU"]; got != "25" {
			k.Errorf("%s_GPU=%q, want 25; the container has %v", computePrefix, got, view.Env)
		}
	}
	// 39Gi of memory are left, and no compute but what others leave idle.
	k.start("fifth", quarter)
	k.pending("fifth")
	k.start("idle", share("gpu", "10Gi", onGPU(uuid)))
	k.running("idle")
	k.remove("a")
	k.sees(k.running("fifth"), mainContainer, k.grant("fifth"))
}

func order(k *kit) {
	published := func() (shares []string) {
		devices, err := k.Devices(k.ctx)
		k.ok(err)
		for _, d := range devices {
			if d.Type == harness.TypeShare {
				shares = append(shares, d.Name)
			}
		}
		return shares
	}
	want := published()
	var got []string
	for i := range want {
		// One after the other: the scheduler is not asked to keep an order.
		name := string(rune('a' + i))
		k.start(name, share("gpu", "50Gi"))
		got = append(got, k.grant(name).Device.Name)
	}
	if !slices.Equal(got, want) {
		k.Errorf("GPUs were filled in the order %q, published are %q", got, want)
	}
	k.ok(k.RestartPlugin(k.ctx))
	k.ok(k.AwaitGPUs(k.ctx))
	if after := published(); !slices.Equal(after, want) {
		k.Errorf("after a restart %q are published, before %q", after, want)
	}
}

func deletion(k *kit) {
	first := k.claim("first", share("gpu", "70Gi"))
	k.use("first", "first")
	k.running("first")
	grant := k.grant("first")
	files, err := k.ClaimFiles(string(first.UID))
	k.ok(err)
	if len(files) == 0 {
		k.Error("no file of a prepared claim was found, so none that is left would be")
	}
	k.remove("first")
	files, err = k.ClaimFiles(string(first.UID))
	k.ok(err)
	if len(files) != 0 {
		k.Errorf("files of the claim are left on the node: %q", files)
	}
	k.start("second", share("gpu", "70Gi"))
	if second := k.grant("second"); second.Device.GPU != grant.Device.GPU {
		k.Errorf("the second pod got GPU %s, not %s, which the first had given back", second.Device.GPU, grant.Device.GPU)
	}
	k.running("second")
}
