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

package ports

import (
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChoose(t *testing.T) {
	all := func(int) bool { return true }
	for _, tt := range []struct {
		name string
		n    int
		seed uint32
		free func(int) bool
		want []int
		err  bool
	}{
		{"from the seed on", 3, 5, all, []int{20005, 20006, 20007}, false},
		{"round the end of the range", 3, 9998, all, []int{29998, 29999, 20000}, false},
		{"large seeds", 1, 4294967295, all, []int{20000 + 4294967295%10000}, false},
		{"around ports in use", 2, 0, func(p int) bool { return p != 20000 && p != 20002 }, []int{20001, 20003}, false},
		{"too few are free", 2, 0, func(p int) bool { return p == 25000 }, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Choose(tt.n, tt.seed, tt.free)
			if (err != nil) != tt.err {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFree(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if Free(port) {
		t.Errorf("port %d is free although somebody listens", port)
	}
	l.Close()
	if !Free(port) {
		t.Errorf("port %d is not free although nobody listens", port)
	}
}
