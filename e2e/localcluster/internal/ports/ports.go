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

// Package ports picks free TCP ports on the loopback address.
package ports

import (
	"fmt"
	"net"
	"strconv"
)

// The range lies below the one that Linux uses for outgoing connections
// (32768 and up), so that no such connection takes a port between the choice and
// the component's start, or while a component restarts.
const (
	first = 20000
	last  = 29999
)

// Choose returns n different ports for which free answers true. The search
// starts at a place that depends on seed, so that clusters that come up at the
// same time do not compete for the same ports.
func Choose(n int, seed uint32, free func(port int) bool) ([]int, error) {
	const size = last - first + 1
	chosen := make([]int, 0, n)
	for i := 0; i < size && len(chosen) < n; i++ {
		port := first + (int(seed%size)+i)%size
		if free(port) {
			chosen = append(chosen, port)
		}
	}
	if len(chosen) < n {
		return nil, fmt.Errorf("only %d of %d TCP ports are free on 127.0.0.1 between %d and %d", len(chosen), n, first, last)
	}
	return chosen, nil
}

// Free says whether a component could listen on the loopback port now.
func Free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
