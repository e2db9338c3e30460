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

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/memslice/memslice/e2e/fakegpu/catalog"
)

func TestUUIDs(t *testing.T) {
	format := regexp.MustCompile(`^GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	seen := map[string]string{}
	for _, preset := range catalog.PresetNames() {
		for _, seed := range []string{"", "node-2"} {
			s, again := newState(t, preset, seed), newState(t, preset, seed)
			p, err := catalog.LookupPreset(preset)
			if err != nil {
				t.Fatal(err)
			}
			// A machine keeps its GPUs when it gets another driver.
			node := fmt.Sprintf("%s/%q/", p.Machine(), seed)
			for i := range s.GPUs {
				uuid := s.GPUs[i].UUID
				if !format.MatchString(uuid) {
					t.Errorf("%q is no GPU UUID", uuid)
				}
				if again.GPUs[i].UUID != uuid {
					t.Errorf("GPU %d of %s is %s and then %s", i, preset, uuid, again.GPUs[i].UUID)
				}
				slot := node + fmt.Sprint(i)
				if other, ok := seen[uuid]; ok && other != slot {
					t.Errorf("%s and %s share %s", slot, other, uuid)
				}
				seen[uuid] = slot
			}
		}
	}
}

func TestNewRefuses(t *testing.T) {
	preset, err := catalog.LookupPreset("t4")
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{-1, catalog.MaxGPUs + 1} {
		if _, err := New(preset, count, ""); err == nil {
			t.Errorf("a node with %d GPUs was made", count)
		}
	}
	if s, err := New(preset, catalog.MaxGPUs, ""); err != nil || len(s.GPUs) != catalog.MaxGPUs {
		t.Errorf("a full node: %v", err)
	}
}

func TestFind(t *testing.T) {
	s := newState(t, "mixed", "")
	third := s.GPUs[2].UUID
	for name, test := range map[string]struct {
		call string
		want string
	}{
		"index":                    {"2", ""},
		"uuid":                     {third, ""},
		"bus id":                   {"0000:41:00.0", ""},
		"bus id as NVML writes it": {"00000000:41:00.0", ""},
		"bus id in upper case":     {strings.ToUpper("0000:41:00.0"), ""},
		"index too large":          {"6", "no GPU has index 6"},
		"negative index":           {"-1", "no GPU has index -1"},
		"unknown uuid":             {"GPU-0", `no GPU is called "GPU-0"`},
		"nothing":                  {"", `no GPU is called ""`},
	} {
		t.Run(name, func(t *testing.T) {
			gpu, err := s.Find(test.call)
			if test.want == "" {
				if err != nil || gpu.UUID != third {
					t.Errorf("Find = %+v, %v", gpu, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Find = %v, want %q", err, test.want)
			}
		})
	}
}

func TestEventsAreBounded(t *testing.T) {
	s := newState(t, "t4", "")
	for range maxEvents + 10 {
		if err := s.Raise("0", 13); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.Events) != maxEvents || s.LastEvent() != maxEvents+10 {
		t.Errorf("%d events kept, the last is %d", len(s.Events), s.LastEvent())
	}
	if err := s.Raise("1", 13); err == nil {
		t.Error("a GPU that does not exist raised an event")
	}
}

func TestParseResult(t *testing.T) {
	for _, name := range []string{"GPU_IS_LOST", "ERROR_GPU_IS_LOST", "NVML_ERROR_GPU_IS_LOST"} {
		if got, err := ParseResult(name); err != nil || got != GPUIsLost {
			t.Errorf("ParseResult(%q) = %v, %v", name, got, err)
		}
	}
	if _, err := ParseResult("gpu_is_lost"); err == nil {
		t.Error("an unknown name was accepted")
	}
}
