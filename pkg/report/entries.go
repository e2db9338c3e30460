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

package report

import (
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/pkg/audit"
	"github.com/memslice/memslice/pkg/gpu"
)

// key is a condition of a device of a claim.
type key struct {
	claim  types.UID
	device int
	kind   string
}

// since is the last change of a condition.
type since struct {
	status metav1.ConditionStatus
	time   time.Time
}

// entries are what a claim's status is to say of its devices.
func (r *Reporter) entries(c audit.Claim) ([]resourceapi.AllocatedDeviceStatus, error) {
	var entries []resourceapi.AllocatedDeviceStatus
	for i, d := range c.Devices {
		encoded, err := data(c, d)
		if err != nil {
			return nil, err
		}
		entry := resourceapi.AllocatedDeviceStatus{
			Driver: gpu.DriverName, Pool: d.Grant.Pool, Device: d.Grant.Device, Data: &runtime.RawExtension{Raw: encoded},
		}
		if d.Grant.ShareID != "" {
			entry.ShareID = ptr.To(d.Grant.ShareID)
		}
		for _, is := range conditions(d) {
			entry.Conditions = append(entry.Conditions, metav1.Condition{
				Type: is.kind, Status: is.status, Reason: is.reason, Message: is.text,
				LastTransitionTime: metav1.NewTime(r.changed(key{c.UID, i, is.kind}, is.status)),
			})
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// merge puts entries in the place of this driver's in a claim's status.
func merge(status *resourceapi.ResourceClaimStatus, entries []resourceapi.AllocatedDeviceStatus) {
	status.Devices = append(slices.DeleteFunc(status.Devices, func(d resourceapi.AllocatedDeviceStatus) bool { return d.Driver == gpu.DriverName }), entries...)
}

// changed is when a condition got its status.
func (r *Reporter) changed(k key, status metav1.ConditionStatus) time.Time {
	if last, ok := r.since[k]; ok && last.status == status {
		return last.time
	}
	r.since[k] = since{status, r.Now().UTC().Truncate(time.Second)}
	return r.since[k].time
}

// told is what a claim's status says, as far as a change of it is told at once.
type told struct {
	devices []toldDevice
	when    time.Time
}

type toldDevice struct {
	conditions []condition
	limits     string
	peak       uint64
}

func tell(c audit.Claim, now time.Time) told {
	t := told{when: now}
	for _, d := range c.Devices {
		var limits string
		for _, l := range d.Limits {
			limits += l.Container.ID + "=" + quantity(int64(l.Bytes)) + " "
		}
		t.devices = append(t.devices, toldDevice{conditions(d), limits, d.Peak})
	}
	return t
}

// outdates tells whether the claim's status has to be written again. A higher peak
// alone is worth it only now and then.
func (t told) outdates(former told, peakInterval time.Duration) bool {
	if len(t.devices) != len(former.devices) {
		return true
	}
	for i, d := range t.devices {
		f := former.devices[i]
		if d.limits != f.limits || !slices.Equal(d.conditions, f.conditions) {
			return true
		}
		if d.peak > f.peak && t.when.Sub(former.when) >= peakInterval {
			return true
		}
	}
	return false
}
