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

package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestFlagsRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--nodes=0":         "--nodes=0: must be from 1 to 5000",
		"--nodes=5001":      "--nodes=5001",
		"--pods=-1":         "--pods=-1: must be from 1 to 10000",
		"--pods=200":        "--pods=200: must be less than the 200 GPUs that --nodes and --full leave free",
		"--full=8":          "--full=8: must be from 0 to 7",
		"--full=4,0":        "--full=0: must be from 0 to 7, and more than the one before",
		"--full=4,4":        "--full=4: must be",
		"--rounds=0":        "--rounds=0: must be from 1 to 1000",
		"--timeout=0s":      "--timeout=0s: must be more than 0",
		"--layouts=mig,mag": `--layouts: there is no "mag"`,
		"-o=xml":            "--output=xml",
		"mig":               "unknown command",
	} {
		t.Run(args, func(t *testing.T) {
			command := newCommand()
			command.SetArgs([]string{args, "--root", t.TempDir()})
			command.SetErr(&bytes.Buffer{})
			if err := command.Execute(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want %q", err, want)
			}
		})
	}
}

func TestHelpTellsTheLayouts(t *testing.T) {
	command := newCommand()
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetArgs([]string{"--help"})
	if err := command.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, p := range publications() {
		if !strings.Contains(out.String(), "  "+p.name+" ") || !strings.Contains(out.String(), p.what) {
			t.Errorf("--help does not tell of %s", p.name)
		}
	}
}
