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

package image

import (
	"fmt"
	"os/exec"
	"path"
	"strings"
)

// Busybox returns a busybox as /bin/busybox, with the libraries that it needs if
// it is not static, and a link in /bin for each of the commands that it has,
// which it is asked for.
func (l Libraries) Busybox(source string) ([]File, []Link, error) {
	files, err := l.Closure(source, "/bin/busybox", nil)
	if err != nil {
		return nil, nil, err
	}
	out, err := exec.Command(source, "--list").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list the commands of %s: %w", source, err)
	}
	return files, applets(string(out)), nil
}

// applets makes links from the output of busybox --list, a name a line.
func applets(list string) []Link {
	var links []Link
	for applet := range strings.FieldsSeq(list) {
		if applet != "busybox" {
			links = append(links, Link{Target: "busybox", Path: path.Join("/bin", applet)})
		}
	}
	return links
}
