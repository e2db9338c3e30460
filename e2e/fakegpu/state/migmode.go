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

package state

import "fmt"

// firstWithoutReset is the first major compute capability whose GPUs change
// their MIG mode without a reset, and forget it with the driver (NVIDIA's MIG
// user guide, "GPU Reset on Hopper+ GPUs").
const firstWithoutReset = 9

// MIGMode is the mode in force and the one after the next reset.
type MIGMode struct {
	Current bool `json:"current,omitempty"`
	Pending bool `json:"pending,omitempty"`
}

// SetMIGMode asks for a mode, which is pending from then on. It is in force
// when activation is nil; otherwise activation is the Refusal that keeps it
// from being.
func (g *GPU) SetMIGMode(on bool) (activation, err error) {
	model, err := g.capable()
	if err != nil {
		return nil, err
	}
	g.MIG.Pending = on
	if g.MIG.Current == on {
		return nil, nil
	}
	if busy := g.busy(); busy != "" {
		return refuse(InUse, "GPU %s is in use: %s", g.UUID, busy), nil
	}
	if model.ComputeMajor < firstWithoutReset {
		return refuse(ResetRequired, "GPU %s has to be reset: 'fakegpu reset' does that", g.UUID), nil
	}
	g.MIG.Current = on
	return nil, nil
}

// Reset resets an idle GPU, which applies the pending MIG mode and loses
// instances.
func (g *GPU) Reset() error {
	if len(g.Processes) > 0 {
		return refuse(InUse, "GPU %s is used by %s", g.UUID, describeProcesses(g.Processes))
	}
	g.Instances = nil
	g.MIG.Current = g.MIG.Pending
	return nil
}

// unload is what the end of the driver does to a GPU: what lives in the driver
// is gone, and what the GPU's own memory keeps is not.
func (g *GPU) unload() {
	g.Processes, g.Instances, g.Limits, g.Leaked = nil, nil, nil, 0
	if model, err := g.capable(); err == nil && model.ComputeMajor >= firstWithoutReset {
		g.MIG.Pending = false
	}
	g.MIG.Current = g.MIG.Pending
}

// busy says what keeps the MIG mode from changing, if anything does.
func (g *GPU) busy() string {
	if len(g.Processes) > 0 {
		return describeProcesses(g.Processes)
	}
	if len(g.Instances) > 0 {
		return fmt.Sprintf("%d GPU instances exist", len(g.Instances))
	}
	return ""
}
