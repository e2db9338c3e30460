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

package prepare

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/state/statetest"
)

// TestAgainstModel does at random what kubelets, users and power supplies do,
// and compares what is on the host with a model of it.
func TestAgainstModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := &model{host: newHost(t), random: rand.New(rand.NewPCG(seed, 0)), plans: map[types.UID]claim.Plan{}, prepared: map[types.UID]claim.Plan{}}
			m.plugin = m.host.plugin()
			for step := range 300 {
				m.step(fmt.Sprint("step ", step))
				if t.Failed() {
					t.FailNow()
				}
			}
			if m.accepted < 20 || m.refused < 5 {
				t.Errorf("%d accepted, %d refused: the test is one-sided", m.accepted, m.refused)
			}
		})
	}
}

type model struct {
	host   *host
	plugin *Preparer
	random *rand.Rand

	plans    map[types.UID]claim.Plan // of the claims that are in use
	prepared map[types.UID]claim.Plan
	next     int

	accepted, refused int
}

func (m *model) step(where string) {
	t := m.host.t
	switch m.random.IntN(13) {
	case 0, 1, 2, 3:
		m.create()
	case 4, 5, 6:
		m.prepare(where)
	case 7, 8:
		if uid, ok := m.pick(m.prepared); ok {
			if err := m.plugin.Unprepare(m.host.context(), uid); err != nil {
				t.Errorf("%s: unprepare: %v", where, err)
			}
			delete(m.prepared, uid)
		}
	case 9: // force-deleted
		if uid, ok := m.pick(m.plans); ok {
			m.host.setInUse(uid, false)
			delete(m.plans, uid)
		}
	case 10:
		m.crash(where)
	case 11:
		m.reconcile(where)
	case 12:
		m.destroy(where)
	}
	uids := slices.Sorted(maps.Keys(m.prepared))
	m.host.want(where, uids...)
}

// create allocates a new claim, as a scheduler would that knows nothing of what
// is still on the host.
func (m *model) create() {
	var grants []gpu.Grant
	for range 1 + m.random.IntN(2) {
		n := m.random.IntN(3)
		switch m.random.IntN(6) {
		case 0:
			grants = append(grants, grant(fmt.Sprint("gpu-", n), 80*gib))
		case 1, 2:
			grants = append(grants, grant(fmt.Sprint("slice-", n), 1+m.random.Int64N(30*gib)))
		default:
			size := 1 << m.random.IntN(3)
			grants = append(grants, grant(fmt.Sprintf("mig-%d-%d-%d", n, size, size*m.random.IntN(8/size)), int64(size)*10*gib))
		}
	}
	m.next++
	uid := types.UID(fmt.Sprintf("c%04d", m.next))
	m.plans[uid] = m.host.plan(uid, grants...)
}

func (m *model) pick(plans map[types.UID]claim.Plan) (types.UID, bool) {
	if len(plans) == 0 {
		return "", false
	}
	uids := slices.Sorted(maps.Keys(plans))
	return uids[m.random.IntN(len(uids))], true
}

func (m *model) prepare(where string) {
	uid, ok := m.pick(m.plans)
	if !ok {
		return
	}
	devices, err := m.plugin.Prepare(m.host.context(), m.plans[uid])
	if possible := m.fits(m.plans[uid]); (err == nil) != possible {
		m.host.t.Errorf("%s: prepare of %v beside %v is possible: %v, but the error is %v", where, m.plans[uid], m.prepared, possible, err)
		return
	}
	if err != nil {
		m.refused++
		return
	}
	m.accepted++
	m.prepared[uid] = m.plans[uid]
	m.wantDevices(where, uid, devices)
}

// wantDevices checks that every grant has a CDI device that nobody else has.
func (m *model) wantDevices(where string, uid types.UID, devices []kubeletplugin.Device) {
	var ids, want []string
	for i, d := range devices {
		ids = append(ids, d.CDIDeviceIDs...)
		want = append(want, fmt.Sprintf("gpu.memslice.dev/claim=%s-r-%d", uid, i))
	}
	if diff := cmp.Diff(want, ids); diff != "" || len(devices) != len(m.plans[uid].Grants) {
		m.host.t.Errorf("%s: CDI devices (-want +got):\n%s", where, diff)
	}
}

// fits is the definition of what may be prepared together.
func (m *model) fits(plan claim.Plan) bool {
	forms, whole, memory, slots := map[string]map[gpu.Form]bool{}, map[string]int{}, map[string]int64{}, map[string]int{}
	add := func(grants []gpu.Grant) {
		for _, g := range grants {
			if forms[g.UUID] == nil {
				forms[g.UUID] = map[gpu.Form]bool{}
			}
			forms[g.UUID][g.Form] = true
			switch g.Form {
			case gpu.Whole:
				whole[g.UUID]++
			case gpu.Slice:
				memory[g.UUID] += g.Memory
			case gpu.MIG:
				for i := range g.Partition.Size {
					slots[fmt.Sprint(g.UUID, " ", g.Partition.Start+i)]++
				}
			}
		}
	}
	add(plan.Grants)
	for uid, other := range m.prepared {
		if uid != plan.UID {
			add(other.Grants)
		}
	}
	for _, g := range plan.Grants {
		if len(forms[g.UUID]) > 1 || whole[g.UUID] > 1 || memory[g.UUID] > 80*gib {
			return false
		}
	}
	return !slices.ContainsFunc(slices.Collect(maps.Values(slots)), func(n int) bool { return n > 1 })
}

// crash ends the plugin somewhere in a Prepare, with or without the machine. The
// kubelet then repeats the call, and those of what it runs.
func (m *model) crash(where string) {
	uid, ok := m.pick(m.plans)
	if !ok {
		return
	}
	m.host.faults = &statetest.Faults{}
	p, disk := m.host.pluginWithDisk()
	m.host.faults.Mode = []statetest.Mode{statetest.Crash, statetest.Torn}[m.random.IntN(2)]
	m.host.faults.At = m.host.faults.Steps() + 1 + m.random.IntN(12)
	_, _ = p.Prepare(m.host.context(), m.plans[uid])
	m.host.wantRecorded(where)
	if m.random.IntN(2) == 0 {
		disk.PowerLoss()
		m.host.reboot()
	}
	m.host.faults.At = 0
	m.plugin = m.host.plugin()
	for other, plan := range m.prepared {
		if _, err := m.plugin.Prepare(m.host.context(), plan); err != nil {
			m.host.t.Errorf("%s: after the crash, prepared claim %s: %v", where, other, err)
		}
	}
	_, err := m.plugin.Prepare(m.host.context(), m.plans[uid])
	if possible := m.fits(m.plans[uid]); (err == nil) != possible {
		m.host.t.Errorf("%s: after the crash, prepare is possible: %v, but the error is %v", where, possible, err)
	}
	if err == nil {
		m.prepared[uid] = m.plans[uid]
	}
}

// destroy has an administrator, or a driver that is reloaded, take an instance
// away from a claim, which gets another one.
func (m *model) destroy(where string) {
	uid, ok := m.pick(m.prepared)
	if !ok {
		return
	}
	at := slices.IndexFunc(m.prepared[uid].Grants, func(g gpu.Grant) bool { return g.Form == gpu.MIG })
	if _, inUse := m.plans[uid]; at < 0 || !inUse {
		return
	}
	m.host.administrator(m.prepared[uid].Grants[at].Device, false)
	m.reconcile(where, uid)
}

func (m *model) reconcile(where string, restored ...types.UID) {
	report, err := m.plugin.Reconcile(m.host.context())
	if err != nil {
		m.host.t.Errorf("%s: %v", where, err)
	}
	var gone []types.UID
	for uid := range m.prepared {
		if _, inUse := m.plans[uid]; !inUse {
			gone = append(gone, uid)
			delete(m.prepared, uid)
		}
	}
	slices.Sort(gone)
	if diff := cmp.Diff(Report{Unprepared: ended(gone...), Restored: restored}, report); diff != "" {
		m.host.t.Errorf("%s: reconcile (-want +got):\n%s", where, diff)
	}
}
