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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// entries is a claim's status as it is to be.
func (r *Reporter) entries(c audit.Claim) (*resourceapply.ResourceClaimApplyConfiguration, error) {
	status := resourceapply.ResourceClaimStatus()
	for i, d := range c.Devices {
		encoded, err := data(c, d)
		if err != nil {
			return nil, err
		}
		entry := resourceapply.AllocatedDeviceStatus().
			WithDriver(gpu.DriverName).WithPool(d.Grant.Pool).WithDevice(d.Grant.Device).
			WithData(runtime.RawExtension{Raw: encoded})
		if d.Grant.ShareID != "" {
			entry.WithShareID(d.Grant.ShareID)
		}
		for _, is := range conditions(d) {
			changed := r.changed(key{c.UID, i, is.kind}, is.status)
			entry.WithConditions(metav1apply.Condition().WithType(is.kind).WithStatus(is.status).
				WithReason(is.reason).WithMessage(is.text).WithLastTransitionTime(metav1.NewTime(changed)))
		}
		status.WithDevices(entry)
	}
	return resourceapply.ResourceClaim(c.Name, c.Namespace).WithUID(c.UID).WithStatus(status), nil
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
