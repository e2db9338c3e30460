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

// Package program chooses what a multi-call binary runs. It knows none of the
// programs.
package program

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Set is the programs of a binary by name. Each runs with os.Args as if it were
// a binary of its own, and ends the process itself when it fails.
type Set map[string]func()

// Choose returns the program that args (as in os.Args) ask for and the arguments
// that it should see. The name that the binary is called by counts first, so
// that a symlink named kubectl is kubectl; else the first argument names it.
func (s Set) Choose(args []string) (run func(), rest []string, err error) {
	if run := s[filepath.Base(args[0])]; run != nil {
		return run, args, nil
	}
	names := strings.Join(slices.Sorted(maps.Keys(s)), ", ")
	if len(args) < 2 {
		return nil, nil, fmt.Errorf("name the program to run as the first argument: one of %s", names)
	}
	run = s[args[1]]
	if run == nil {
		return nil, nil, fmt.Errorf("no program %q: the first argument must be one of %s", args[1], names)
	}
	return run, args[1:], nil
}
