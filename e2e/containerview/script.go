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

package containerview

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/dynamic-resource-allocation/api/metadata"
)

// Marks of the script's output. Each begins a line that ends what came before.
const (
	nodeMark = "@node "
	fileMark = "@file "
	endMark  = "@end"
)

// Script is a POSIX shell script to run in the container; Parse reads what it
// prints. It needs nothing but the shell, env and cat.
func Script() string {
	return strings.ReplaceAll(`env
for n in /dev/nvidia* /dev/nvidia-caps/*; do [ -c "$n" ] && echo "`+nodeMark+`$n"; done
for f in DIR/*/*/*/*`+metadata.MetadataFileSuffix+`; do [ -f "$f" ] && echo "`+fileMark+`$f" && cat "$f"; done
echo "`+endMark+`"`, "DIR", metadata.ContainerDir)
}

// Parse reads the output of Script.
func Parse(output string) (View, error) {
	view := View{Env: map[string]string{}, Metadata: map[string]string{}}
	var file string
	for line := range strings.Lines(output) {
		text := strings.TrimRight(line, "\r\n")
		switch {
		case text == endMark:
			slices.Sort(view.DeviceNodes)
			return view, nil
		case strings.HasPrefix(text, nodeMark):
			view.DeviceNodes = append(view.DeviceNodes, strings.TrimPrefix(text, nodeMark))
		case strings.HasPrefix(text, fileMark):
			file = strings.TrimPrefix(text, fileMark)
			view.Metadata[file] = ""
		case file != "":
			view.Metadata[file] += line
		case strings.HasPrefix(text, envPrefix):
			name, value, _ := strings.Cut(text, "=")
			view.Env[name] = value
		}
	}
	return View{}, fmt.Errorf("the script in the container did not reach its end; it printed %q", output)
}
