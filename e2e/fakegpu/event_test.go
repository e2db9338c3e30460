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

package fakegpu

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memslice/memslice/e2e/fakegpu/fakegputest"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

func TestEvents(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "rtx4090x2")
		library := load(t, driver)
		raise := func(name string, xid uint64) {
			driver.Update(t, func(s *state.State) error { return s.Raise(name, xid) })
		}
		raise("0", 13)

		set := get[nvml.EventSet](t)(library.EventSetCreate())
		t.Cleanup(func() { must(t, set.Free()) })
		device := get[nvml.Device](t)(library.DeviceGetHandleByIndex(0))
		must(t, device.RegisterEvents(nvml.EventTypeXidCriticalError, set))
		if got := device.RegisterEvents(nvml.EventTypePState, set); got != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("registering for P-state changes = %v", got)
		}
		if event, result := set.Wait(0); result != nvml.ERROR_TIMEOUT {
			t.Errorf("an event from before the registration: %+v, %v", event, result)
		}

		raise("1", 79)
		if event, result := set.Wait(50); result != nvml.ERROR_TIMEOUT {
			t.Errorf("another GPU's event: %+v, %v", event, result)
		}

		raise("0", 31)
		raise("0", 79)
		for _, xid := range []uint64{31, 79} {
			event := get[nvml.EventData](t)(set.Wait(10_000))
			if event.EventType != nvml.EventTypeXidCriticalError || event.EventData != xid {
				t.Errorf("event %+v, want XID %d", event, xid)
			}
			if uuid := get[string](t)(event.Device.GetUUID()); uuid != get[string](t)(device.GetUUID()) {
				t.Errorf("the event's GPU is %s", uuid)
			}
		}
	})
}

// TestEventWakesWaiter raises the event while a thread waits for it.
func TestEventWakesWaiter(t *testing.T) {
	fakegputest.Isolate(t, func(t *testing.T) {
		driver := fakegputest.New(t, "t4")
		library := load(t, driver)
		set := get[nvml.EventSet](t)(library.EventSetCreate())
		t.Cleanup(func() { must(t, set.Free()) })
		device := get[nvml.Device](t)(library.DeviceGetHandleByIndex(0))
		must(t, device.RegisterEvents(nvml.EventTypeXidCriticalError, set))
		result := make(chan nvml.Return)
		go func() {
			_, got := set.Wait(60_000)
			result <- got
		}()
		driver.Update(t, func(s *state.State) error { return s.Raise("0", 48) })
		must(t, <-result)
	})
}
