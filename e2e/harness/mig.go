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

package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Instance is a MIG instance of a simulated GPU.
type Instance struct {
	UUID    string `json:"uuid"`    // empty for a GPU instance without a compute instance
	GPU     string `json:"gpuUUID"` // UUID of the card
	Profile string `json:"profile"`
	Start   int    `json:"start"` // the first memory slice

	GPUInstance     int `json:"gpuInstance"`
	ComputeInstance int `json:"computeInstance"`
}

// Promise is what a container has to find of a grant.
type Promise struct {
	UUID         string   // of the GPU, or of the MIG instance
	Node         string   // path of the GPU's device node
	Capabilities []string // paths of the MIG instance's device nodes
}

// Promised is what a grant comes to on the GPUs as they are.
func (c *Cluster) Promised(ctx context.Context, g Grant) (Promise, error) {
	node, err := c.GPUs.Node(ctx, g.Device.GPU)
	p := Promise{UUID: g.Device.UUID, Node: node}
	if err != nil || g.Device.Type != TypeMIG {
		return p, err
	}
	instance, err := c.GPUs.instanceOf(ctx, g.Device)
	if err != nil {
		return p, err
	}
	p.UUID = instance.UUID
	p.Capabilities, err = c.GPUs.capabilities(strings.TrimPrefix(node, "/dev/nvidia"), instance)
	return p, err
}

// instanceOf is the instance that a device stands for: the one with its UUID, or
// the one at its place.
func (g *GPUs) instanceOf(ctx context.Context, d Device) (Instance, error) {
	instances, err := g.Instances(ctx, d.GPU)
	if err != nil {
		return Instance{}, err
	}
	at := slices.IndexFunc(instances, func(i Instance) bool { return i.UUID == d.UUID || i.Place() == d.UUID })
	if at < 0 {
		return Instance{}, fmt.Errorf("device %s stands for no MIG instance of GPU %s, which has %+v", d.Name, d.GPU, instances)
	}
	return instances[at], nil
}

// Place is what the place of an instance is called while there is none.
func (i Instance) Place() string { return fmt.Sprintf("%s/%s/%d", i.GPU, i.Profile, i.Start) }

// capabilities are the device nodes by which the driver lets containers have an
// instance, as it lists them by the number of the GPU's device node.
func (g *GPUs) capabilities(minor string, i Instance) ([]string, error) {
	file := filepath.Join(g.root, "proc", "driver", "nvidia-caps", "mig-minors")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("find the capabilities of MIG instances: %w", err)
	}
	return capabilitiesIn(string(text), minor, i)
}

func capabilitiesIn(minors, gpu string, i Instance) ([]string, error) {
	var nodes []string
	for _, name := range []string{
		fmt.Sprintf("gpu%s/gi%d/access ", gpu, i.GPUInstance),
		fmt.Sprintf("gpu%s/gi%d/ci%d/access ", gpu, i.GPUInstance, i.ComputeInstance),
	} {
		for line := range strings.Lines(minors) {
			if minor, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok {
				nodes = append(nodes, "/dev/nvidia-caps/nvidia-cap"+minor)
			}
		}
	}
	if len(nodes) != 2 {
		return nil, fmt.Errorf("the driver lists the capabilities %q of instance %+v, want two", nodes, i)
	}
	return nodes, nil
}

// Instances are the MIG instances of a GPU, by NVML's numbers.
func (g *GPUs) Instances(ctx context.Context, uuid string) ([]Instance, error) {
	out, err := g.tools.run(ctx, nil, "fakegpu", "mig", "list", "-o", "json", "--root", g.root)
	if err != nil {
		return nil, err
	}
	var all []Instance
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("read the list of MIG instances: %w", err)
	}
	return slices.DeleteFunc(all, func(i Instance) bool { return i.GPU != uuid }), nil
}

// AnyInstance tells whether there is a MIG instance, by the simulation's own
// file, for somebody who is in a hurry.
func (g *GPUs) AnyInstance() (bool, error) {
	text, err := os.ReadFile(filepath.Join(g.root, stateDir, stateFile))
	if err != nil {
		return false, fmt.Errorf("look for MIG instances: %w", err)
	}
	return bytes.Contains(text, []byte(`"instances"`)), nil
}

// Reset takes the MIG instances of a GPU away and turns its MIG mode off, whoever
// turned it on.
func (g *GPUs) Reset(ctx context.Context, uuid string) error {
	if err := g.Do(ctx, "mig", "destroy", "--gpu", uuid, "--instance", "all"); err != nil {
		return err
	}
	return g.Do(ctx, "set", "gpu", uuid, "--mig=false")
}
