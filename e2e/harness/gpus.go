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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// GPUs are the simulated GPUs of the node.
type GPUs struct {
	tools tools
	root  string // the simulated driver root
}

// Root is the driver root on this machine.
func (g *GPUs) Root() string { return g.root }

// Ensure has the GPUs of the preset there, or a number of them that is not 0,
// replacing others, with nothing wrong with them. With no preset it keeps those
// that are there, as they are; without a driver that can have no good end.
func (g *GPUs) Ensure(ctx context.Context, preset string, count int) error {
	current, err := g.State(ctx)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch {
	case current == nil && preset == "":
		preset = DefaultPreset
	case current != nil && preset == "":
		if !current.Driver.Loaded {
			return fmt.Errorf("the simulated driver is unloaded, so there is no GPU: \"%s load --root %s\" loads it", filepath.Join(g.tools.bin, "fakegpu"), g.root)
		}
		preset, count = current.Preset, len(current.GPUs)
	case current != nil && (!of(current, preset, count) || !healthy(current)):
		return g.Replace(ctx, preset, count)
	}
	return g.init(ctx, preset, count)
}

// Replace puts other GPUs into the node, whether or not somebody uses those that
// are there. A count of 0 is as many as the preset has.
func (g *GPUs) Replace(ctx context.Context, preset string, count int) error {
	return g.init(ctx, preset, count, "--force")
}

// init also restores files that are missing.
func (g *GPUs) init(ctx context.Context, preset string, count int, more ...string) error {
	args := []string{"init", "--lib", g.tools.bin, "--preset", preset}
	if count > 0 {
		args = append(args, "--gpus", strconv.Itoa(count))
	}
	return g.Do(ctx, append(args, more...)...)
}

// of tells whether the GPUs are those of a preset, and as many.
func of(s *state.State, preset string, count int) bool {
	if p, err := catalog.LookupPreset(preset); err == nil && count == 0 {
		count = len(p.Models)
	}
	return s.Preset == preset && len(s.GPUs) == count
}

// Do runs a command of fakegpu on these GPUs.
func (g *GPUs) Do(ctx context.Context, args ...string) error {
	_, err := g.tools.run(ctx, nil, "fakegpu", append(args, "--root", g.root)...)
	return err
}

// State is what the simulation holds. The error is fs.ErrNotExist where there is
// no simulation yet.
func (g *GPUs) State(ctx context.Context) (*state.State, error) {
	if _, err := os.Stat(filepath.Join(g.root, stateDir, stateFile)); err != nil {
		return nil, fmt.Errorf("find the simulated GPUs: %w", err)
	}
	out, err := g.tools.run(ctx, nil, "fakegpu", "state", "-o", "json", "--root", g.root)
	if err != nil {
		return nil, err
	}
	var s state.State
	if err := json.Unmarshal(out, &s); err != nil {
		return nil, fmt.Errorf("read the state of the simulated GPUs: %w", err)
	}
	return &s, nil
}

// stateDir is where the simulation keeps its state, below the driver root.
const (
	stateDir  = "var/lib/fakegpu"
	stateFile = "state.json"
)

func healthy(s *state.State) bool {
	for _, g := range s.GPUs {
		if g.Removed || g.Lost || g.MIG != (state.MIGMode{}) || len(g.Instances) > 0 || len(g.Processes) > 0 || len(g.Failures) > 0 || g.Leaked > 0 {
			return false
		}
	}
	return s.Driver.Loaded && !s.Driver.LibraryAbsent
}

// present are the UUIDs of the GPUs that a driver would find.
func present(s *state.State) map[string]bool {
	uuids := map[string]bool{}
	for _, g := range s.GPUs {
		if s.Driver.Loaded && !s.Driver.LibraryAbsent && !g.Removed && !g.Lost {
			uuids[g.UUID] = true
		}
	}
	return uuids
}

// Node is the path of a GPU's device node in containers.
func (g *GPUs) Node(ctx context.Context, uuid string) (string, error) {
	s, err := g.State(ctx)
	if err != nil {
		return "", err
	}
	for _, gpu := range s.GPUs {
		if gpu.UUID == uuid && !gpu.Removed {
			return fmt.Sprintf("/dev/nvidia%d", gpu.Minor), nil
		}
	}
	return "", fmt.Errorf("there is no simulated GPU %s", uuid)
}
