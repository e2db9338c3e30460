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
	"strings"
	"testing"
	"time"
)

func TestCPUTime(t *testing.T) {
	for name, tc := range map[string]struct {
		stat    string
		want    time.Duration
		refusal string
	}{
		"user and system": {stat: "42 (kube) S 1 42 42 0 -1 4194560 99 0 1 0 150 25 7 8 20 0 9 0 1000 1 1\n", want: 1750 * time.Millisecond},
		"any name":        {stat: "42 (a b) R 9) S 1 42 42 0 -1 4194560 99 0 1 0 3 4 7 8 20 0 9 0 1000 1 1\n", want: 70 * time.Millisecond},
		"cut short":       {stat: "42 (kube) S 1 42", refusal: "is not what proc(5) says"},
		"no numbers":      {stat: "42 (kube) S 1 42 42 0 -1 4194560 99 0 1 0 x 25 7 8\n", refusal: `parsing "x"`},
		"nothing":         {stat: "", refusal: "is not what proc(5) says"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cpuTime([]byte(tc.stat))
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if (err == nil) != (tc.refusal == "") || err != nil && !strings.Contains(err.Error(), tc.refusal) {
				t.Errorf("got error %v, want %q", err, tc.refusal)
			}
		})
	}
}
