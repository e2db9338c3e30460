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
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/memslice/memslice/e2e/harness"
)

// demo is what the README of a folder in demo/ promises. Its namespace has the
// folder's name.
type demo struct {
	folder   string
	promises string
	// preset is the GPUs that it is written for; those of the local cluster
	// unless it says otherwise.
	preset string
	// needs is the type of a device that has to be there first, where the node
	// has to be told something.
	needs string
	check func(k *kit)
}

// valuesFile, in a demo's folder, is what the chart has to be told for it. It is
// in a folder of its own, out of the way of "kubectl apply".
const valuesFile = "node/values.yaml"

// demoScenarios are the demos for some GPUs. Folders that nobody checks are among
// those for the local cluster's, and fail.
func demoScenarios(root, preset string) []scenario {
	var scenarios []scenario
	known := demos()
	for _, folder := range demoFolders(root) {
		at := slices.IndexFunc(known, func(d demo) bool { return d.folder == folder })
		d := demo{folder: folder, promises: "what nobody checks: demos_test.go does not know it", check: func(k *kit) { k.Fail() }}
		if at >= 0 {
			d = known[at]
		}
		if d.preset == preset || d.preset == "" && preset == lastPreset {
			scenarios = append(scenarios, scenario{gets: "demo/" + folder + ": " + d.promises, run: func(k *kit) { d.play(k) }})
		}
	}
	return scenarios
}

// demoFolders are empty where the repository is not.
func demoFolders(root string) []string {
	paths, err := filepath.Glob(filepath.Join(root, "demo", "*", "README.md"))
	if err != nil {
		return nil
	}
	var folders []string
	for _, path := range paths {
		folders = append(folders, filepath.Base(filepath.Dir(path)))
	}
	return folders
}

// play does what the README says, in its order: the node, then the manifests, and
// at the end the node again.
func (d demo) play(k *kit) {
	k.afterward(func() error {
		if err := k.GPUs.Ensure(k.ctx, cmp.Or(d.preset, lastPreset), 0); err != nil {
			return err
		}
		return k.AwaitGPUs(k.ctx)
	})
	dir := filepath.Join(k.Root(), "demo", d.folder)
	values, err := os.ReadFile(filepath.Join(dir, valuesFile))
	if err == nil {
		k.configure("%s", values)
	} else if !os.IsNotExist(err) {
		k.ok(err)
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	k.ok(err)
	before, after, _ := strings.Cut(string(readme), "kubectl apply")
	k.ok(k.hardware(before))
	k.afterward(func() error { return k.hardware(after) })
	k.published("what demo/"+d.folder+" needs", func(devices []harness.Device) string {
		if d.needs == "" || slices.ContainsFunc(devices, func(v harness.Device) bool { return v.Type == d.needs }) {
			return ""
		}
		return "there is no device of type " + d.needs
	})
	ours := *k
	ours.ns = d.folder
	*k.namespaces = append(*k.namespaces, ours.ns)
	_, err = k.Kubectl(k.ctx, "apply", "--filename", dir)
	k.ok(err)
	d.check(&ours)
}

// hardware runs those commands of a README that make and destroy MIG instances
// in the local cluster.
func (k *kit) hardware(readme string) error {
	for line := range strings.Lines(readme) {
		command, ok := strings.CutPrefix(line, "_output/bin/fakegpu ")
		if !ok {
			continue
		}
		command, _, _ = strings.Cut(command, "--root") // another one here
		if err := k.GPUs.Do(k.ctx, strings.Fields(command)...); err != nil {
			return err
		}
	}
	return nil
}

// demoPod waits for a demo's pod to run, and returns it and what its claims got.
func (k *kit) demoPod(name string) (*corev1.Pod, []harness.Grant) {
	k.Helper()
	pod := k.running(name)
	grants, err := k.PodGrants(k.ctx, pod)
	k.ok(err)
	return pod, grants
}

// demoDeployment waits for a demo's Deployment and returns what each of its pods
// got, one device, after looking into some of them.
func (k *kit) demoDeployment(name string, replicas int32) []harness.Grant {
	k.Helper()
	k.available(name, replicas)
	var all []harness.Grant
	for i, pod := range k.deployed(name) {
		grants, err := k.PodGrants(k.ctx, &pod)
		k.ok(err)
		if i < 3 {
			k.sees(&pod, mainContainer, grants...)
		}
		all = append(all, grants...)
	}
	if len(all) != int(replicas) {
		k.Fatalf("the %d pods of Deployment %s got %+v", replicas, name, all)
	}
	return all
}

// kinds counts grants by the type of device, and by profile where it has one.
func kinds(grants []harness.Grant) map[string]int {
	count := map[string]int{}
	for _, g := range grants {
		kind := g.Device.Type
		if kind == harness.TypeMIG {
			kind = g.Device.Profile
		}
		count[kind]++
	}
	return count
}
