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
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish/schedulertest"
)

// These tests show what the scheduler makes of what is published.

func TestFormsExcludeEachOther(t *testing.T) {
	schedulers(t, func(t *testing.T, features structured.Features) {
		s := schedulerFor(features, cards(1, 80*gi))

		first, _ := s.MustAllocate(t, shareRequest(memory("4Gi")))
		second, _ := s.MustAllocate(t, shareRequest(memory("4Gi")))
		s.MustStayPending(t, wholeRequest())
		s.Release(first)
		s.MustStayPending(t, wholeRequest())
		s.Release(second)

		whole, result := s.MustAllocate(t, wholeRequest())
		if want := "gpu-00000001-0000"; result.Device != want {
			t.Errorf("device: got %q, want %q", result.Device, want)
		}
		s.MustStayPending(t, wholeRequest())
		s.MustStayPending(t, shareRequest(memory("256Mi")))
		s.Release(whole)
		s.MustAllocate(t, shareRequest(memory("256Mi")))
	})
}

// Neither refused early nor admitted late by rounding.
func TestShares23Fit(t *testing.T) {
	schedulers(t, func(t *testing.T, features structured.Features) {
		s := schedulerFor(features, cards(1, 46068*mi))
		var last string
		for range 23 {
			claim, result := s.MustAllocate(t, shareRequest(memory("2000Mi")))
			if got := granted(result, gpu.CapacityMemory); got != 2000*mi {
				t.Fatalf("granted memory: got %d, want %d", got, 2000*mi)
			}
			last = claim
		}
		s.MustStayPending(t, shareRequest(memory("2000Mi")))
		s.MustStayPending(t, shareRequest(memory("256Mi")))
		s.Release(last)
		s.MustAllocate(t, shareRequest(memory("2068Mi")))
	})
}

func TestGrantedMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		request map[resourceapi.QualifiedName]string
		want    int64
	}{
		"16Gi":                      {memory("16Gi"), 16 * gi},
		"0.5Gi":                     {memory("0.5Gi"), 512 * mi},
		"4G, up to the next Mi":     {memory("4G"), 3815 * mi},
		"1e9, up to the next Mi":    {memory("1e9"), 954 * mi},
		"4096Mi":                    {memory("4096Mi"), 4096 * mi},
		"bytes beyond 32 bits":      {memory("8589934592"), 8 * gi},
		"one byte more than a step": {memory("1073741825"), gi + mi},
		"below the minimum":         {memory("100Mi"), 256 * mi},
		"a single byte":             {memory("1"), 256 * mi},
		"between min and a step":    {memory("256.5Mi"), 257 * mi},
		"all of it":                 {memory("80Gi"), 80 * gi},
		"none named is all of it":   {nil, 80 * gi},
	} {
		t.Run(name, func(t *testing.T) {
			schedulers(t, func(t *testing.T, features structured.Features) {
				// The last half step is more than a share can have.
				s := schedulerFor(features, cards(1, 80*gi+mi/2))
				_, result := s.MustAllocate(t, shareRequest(tc.request))
				if got := granted(result, gpu.CapacityMemory); got != tc.want {
					t.Errorf("granted memory: got %d, want %d", got, tc.want)
				}
				if result.ShareID == nil {
					t.Error("the allocation has no share ID")
				}
			})
		})
	}
}

func TestMemoryBeyondAnyGPU(t *testing.T) {
	for _, amount := range []string{"85899345921", "81Gi", "1Pi", "8Ei"} {
		t.Run(amount, func(t *testing.T) {
			schedulers(t, func(t *testing.T, features structured.Features) {
				s := schedulerFor(features, cards(2, 80*gi))
				if _, results, _ := s.Allocate(shareRequest(memory(amount))); len(results) > 0 {
					t.Errorf("got %v, want no allocation", results)
				}
				s.MustAllocate(t, shareRequest(memory("80Gi")))
			})
		})
	}
}

func TestGrantedCompute(t *testing.T) {
	schedulers(t, func(t *testing.T, features structured.Features) {
		s := schedulerFor(features, cards(1, 80*gi))
		for range 4 {
			_, result := s.MustAllocate(t, shareRequest(compute("25")))
			if got := granted(result, gpu.CapacityCompute); got != 25 {
				t.Errorf("granted compute: got %d, want 25", got)
			}
		}
		s.MustStayPending(t, shareRequest(compute("1")))

		_, result := s.MustAllocate(t, shareRequest(memory("256Mi")))
		if got := granted(result, gpu.CapacityCompute); got != 0 {
			t.Errorf("granted compute where none is named: got %d, want 0", got)
		}
		s.MustStayPending(t, shareRequest(compute("101")))
	})
}

func TestStepLargerThanGPU(t *testing.T) {
	large := offers(cards(1, 79*gi))
	large[0].MemoryMin, large[0].MemoryStep = 40*gi, 40*gi
	schedulers(t, func(t *testing.T, features structured.Features) {
		s := schedulerOf(features, large)
		s.MustStayPending(t, shareRequest(memory("41Gi")))
		_, result := s.MustAllocate(t, shareRequest(memory("1Gi")))
		if got := granted(result, gpu.CapacityMemory); got != 40*gi {
			t.Errorf("granted memory: got %d, want %d", got, 40*gi)
		}
		s.MustStayPending(t, shareRequest(memory("1Gi")))

		// The API refuses a step with which no second amount can be reached.
		policy := s.Slices[1].Spec.Devices[0].Capacity[gpu.CapacityMemory].RequestPolicy
		if step := policy.ValidRange.Step; step != nil {
			t.Errorf("step: got %s, want none", step)
		}
	})
}

// A GPU that cannot answer a question must not end the scheduling of claims
// that ask for it, wherever it is in the order.
func TestSelectorsOverWhatIsUnknown(t *testing.T) {
	mute := gpu.GPU{UUID: card(1, 0).UUID, Memory: &gpu.Memory{Total: 1 << 30}}
	without := gpu.GPU{UUID: card(2, 0).UUID}
	gpus := []gpu.GPU{mute, without, card(3, 80*gi)}
	for form, want := range map[gpu.Form]string{
		gpu.Slice: "gpu-00000003-0000-slice",
		gpu.Whole: "gpu-00000003-0000",
	} {
		for _, expression := range []string{
			`.architecture == "Hopper"`,
			`.brand == "NVIDIA"`,
			`.productName.startsWith("NVIDIA H100")`,
			`.cudaComputeCapability.isGreaterThan(semver("8.9.0"))`,
			`.cudaDriverVersion.compareTo(semver("12.4.0")) >= 0`,
			`.driverVersion.compareTo(semver("580.105.8")) == 0`,
			`.multiprocessors > 100`,
			`.memoryIsolation == "none" && device.capacity["gpu.memslice.dev"].memory.isGreaterThan(quantity("40Gi"))`,
		} {
			t.Run(string(form)+expression, func(t *testing.T) {
				schedulers(t, func(t *testing.T, features structured.Features) {
					s := schedulerFor(features, gpus)
					selector := fmt.Sprintf("device.attributes[%q]%s", gpu.DriverName, expression)
					_, result := s.MustAllocate(t, schedulertest.Request(form, nil, selector))
					if result.Device != want {
						t.Errorf("device: got %q, want %q", result.Device, want)
					}
					// With that taken, all others are looked at.
					s.MustStayPending(t, schedulertest.Request(form, nil, selector))
				})
			})
		}
	}
}

func TestTaintsReachEveryForm(t *testing.T) {
	schedulers(t, func(t *testing.T, features structured.Features) {
		both := offers(cards(2, 80*gi))
		both[0].Withheld = gpu.Unavailable
		s := schedulerOf(features, both)
		_, result := s.MustAllocate(t, shareRequest(memory("4Gi")))
		if want := "gpu-00000002-0000-slice"; result.Device != want {
			t.Errorf("device: got %q, want %q", result.Device, want)
		}
		s.MustStayPending(t, wholeRequest())
	})
}

func granted(result resourceapi.DeviceRequestAllocationResult, name resourceapi.QualifiedName) int64 {
	amount := result.ConsumedCapacity[name]
	return amount.Value()
}
