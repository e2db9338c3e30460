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

package nvidia

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
)

func TestMinor(t *testing.T) {
	m := newMachine(t)
	c := m.client()
	uuid := m.device(3).UUID
	check := func(want, lookups int) {
		t.Helper()
		got, err := c.Minor(uuid)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("minor number: got %d, want %d", got, want)
		}
		if got := len(m.DeviceGetHandleByUUIDCalls()); got != lookups {
			t.Errorf("looked the handle up %d times, want %d", got, lookups)
		}
	}
	check(3, 1) // before any scan
	mustScan(t, c)
	check(3, 1)
	m.device(3).Minor = 7
	check(7, 1)

	// The handle has become another GPU's.
	c.session.handles[uuid] = m.device(4)
	check(7, 2)

	// The driver was loaded again.
	c.session.handles = nil
	m.DeviceGetHandleByUUIDFunc = func(string) (nvml.Device, nvml.Return) { return nil, nvml.ERROR_UNINITIALIZED }
	m.InitFunc = func() nvml.Return { m.SetMockFuncs(); return nvml.SUCCESS }
	check(7, 4)
}

func TestMinorOfUnknownGPU(t *testing.T) {
	m := newMachine(t)
	_, err := m.client().Minor("GPU-none")
	if !errors.Is(err, nvml.ERROR_INVALID_ARGUMENT) {
		t.Errorf("error: got %v, want NVML's", err)
	}
}

func TestMinorWithoutDriver(t *testing.T) {
	m := newMachine(t)
	m.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	_, err := m.client().Minor(m.device(0).UUID)
	checkUnavailable(t, err, false)
}

func TestCDIOption(t *testing.T) {
	m := newMachine(t)
	c := m.client()
	m.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	_, err := c.CDIOption()
	checkUnavailable(t, err, false)

	m.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	option, err := c.CDIOption()
	if err != nil {
		t.Fatal(err)
	}
	lib, err := nvcdi.New(nvcdi.WithMode(nvcdi.ModeNvml), nvcdi.WithDriverRoot(m.root), nvcdi.WithDevRoot(m.root),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils), option)
	if err != nil {
		t.Fatal(err)
	}
	const unknown = "GPU-0badcafe-1111-4222-8333-444444444444"
	if _, err := lib.GetSpec(unknown); err == nil {
		t.Error("no error for an unknown GPU")
	}
	if calls := m.DeviceGetHandleByUUIDCalls(); len(calls) != 1 || calls[0].S != unknown {
		t.Errorf("the NVML that is loaded was asked for %v, want GPU %s", calls, unknown)
	}
}
