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

package publish

import (
	"regexp"
	"strconv"
	"strings"
)

// noVersion stands for a version that is not known. Every real one is newer,
// so "at least" does not select what is unknown.
const noVersion = "0.0.0"

var leadingNumbers = regexp.MustCompile(`^[0-9]+(\.[0-9]+){0,2}`)

// semver makes a version of NVIDIA's ("535.104.05", "13.0") one that
// semver.org 2.0.0 and the API accept: three numbers without leading zeros.
// What follows the third number is dropped. It is noVersion for anything that
// does not begin with a number, or has one beyond 64 bits, which CEL cannot
// read.
func semver(version string) string {
	parts := strings.Split(leadingNumbers.FindString(version), ".")
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return noVersion
		}
		parts[i] = strconv.FormatUint(number, 10)
	}
	for len(parts) < 3 {
		parts = append(parts, "0")
	}
	return strings.Join(parts, ".")
}
