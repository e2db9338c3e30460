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
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// quantity is an amount of bytes, as a flag.
type quantity uint64

func (q *quantity) String() string { return amount(uint64(*q)) }
func (q *quantity) Type() string   { return "quantity" }

func (q *quantity) Set(text string) error {
	parsed, err := resource.ParseQuantity(text)
	if err != nil {
		return err
	}
	if parsed.Sign() < 0 || parsed.CmpInt64(math.MaxInt64) > 0 {
		return fmt.Errorf("%s is not possible", text)
	}
	*q = quantity(parsed.Value())
	return nil
}

// hold is a time, as a flag.
type hold time.Duration

const forever = hold(math.MaxInt64)

func (h *hold) String() string {
	if *h == forever {
		return "forever"
	}
	return time.Duration(*h).String()
}
func (h *hold) Type() string { return "duration" }

func (h *hold) Set(text string) error {
	if text == "forever" {
		*h = forever
		return nil
	}
	d, err := time.ParseDuration(text)
	*h = hold(d)
	return err
}

var deviceNode = regexp.MustCompile(`^nvidia([0-9]+)$`)

// visible are the minor numbers of the GPUs that CUDA sees, in its order: those
// whose device node there is, as CUDA_VISIBLE_DEVICES picks and orders them.
func visible(dev string, getenv func(string) string) ([]int, error) {
	entries, err := os.ReadDir(dev)
	if err != nil {
		return nil, fmt.Errorf("look for GPUs: %w", err)
	}
	var minors []int
	for _, entry := range entries {
		if m := deviceNode.FindStringSubmatch(entry.Name()); m != nil {
			if minor, err := strconv.Atoi(m[1]); err == nil {
				minors = append(minors, minor)
			}
		}
	}
	slices.Sort(minors)
	picked := getenv("CUDA_VISIBLE_DEVICES")
	if picked == "" {
		return minors, nil
	}
	var chosen []int
	for number := range strings.SplitSeq(picked, ",") {
		at, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil || at < 0 || at >= len(minors) {
			break // CUDA sees those before the first that there is not
		}
		chosen = append(chosen, minors[at])
	}
	return chosen, nil
}
