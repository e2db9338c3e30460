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
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/audit"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/isolation"
)

// The conditions of a device in a claim's status, and their reasons.
const (
	// ConditionReady tells whether what was granted is in force.
	ConditionReady = "Ready"

	ReasonEnforced    = "Enforced"    // limits were set and read back
	ReasonNotStarted  = "NotStarted"  // no container has started that could be limited
	ReasonLimitFailed = "LimitFailed" // it is unknown whether a limit holds
	ReasonHardware    = "Hardware"    // the MIG instance is the limit
	ReasonNotEnforced = "NotEnforced" // nothing holds the claim to its amount

	// ReasonUnknown is of both, where the GPU cannot be asked.
	ReasonUnknown = "Unknown"

	// ConditionWithinGrant tells whether the processes have what was granted or
	// less.
	ConditionWithinGrant = "WithinGrant"

	ReasonWithinGrant = "WithinGrant"
	ReasonOverUse     = "OverUse"
)

// condition is one without the time of its last change.
type condition struct {
	kind   string
	status metav1.ConditionStatus
	reason string
	text   string
}

// conditions are those of a device.
func conditions(d audit.Device) []condition {
	return []condition{ready(d), withinGrant(d)}
}

func ready(d audit.Device) condition {
	is := func(status metav1.ConditionStatus, reason, format string, args ...any) condition {
		return condition{ConditionReady, status, reason, fmt.Sprintf(format, args...)}
	}
	granted := quantity(d.Grant.Memory)
	switch {
	case d.Grant.AdminAccess:
		return is(metav1.ConditionTrue, ReasonNotEnforced, "admin access takes nothing and is held to nothing")
	case d.Grant.Form == gpu.MIG:
		return is(metav1.ConditionTrue, ReasonHardware, "the MIG instance has %s", granted)
	case d.Grant.Form == gpu.Whole:
		return is(metav1.ConditionTrue, ReasonNotEnforced, "the claim has the whole GPU to itself")
	case d.Grant.Isolation != gpu.IsolationCgroup:
		return is(metav1.ConditionTrue, ReasonNotEnforced, "nothing holds the claim to %s: over-use is reported", granted)
	case !d.Known:
		return is(metav1.ConditionUnknown, ReasonUnknown, unknown)
	case len(d.Limits) == 0:
		return is(metav1.ConditionFalse, ReasonNotStarted, "the limit is set when a container starts")
	}
	if err := errors.Join(errorsOf(d.Limits)...); err != nil {
		return is(metav1.ConditionFalse, ReasonLimitFailed, "%v", err)
	}
	return is(metav1.ConditionTrue, ReasonEnforced, "the limits of its containers (%d) are set, and were read back from the driver", len(d.Limits))
}

// unknown is the text of conditions that are not known.
const unknown = "the GPU cannot be asked at the moment; the node's plugin has the reason in its log"

func errorsOf(limits []isolation.Limit) (errs []error) {
	for _, l := range limits {
		errs = append(errs, l.Err)
	}
	return errs
}

func withinGrant(d audit.Device) condition {
	if !d.Known {
		return condition{ConditionWithinGrant, metav1.ConditionUnknown, ReasonUnknown, unknown}
	}
	if d.Over() {
		return condition{ConditionWithinGrant, metav1.ConditionFalse, ReasonOverUse,
			fmt.Sprintf("more is in use than the %s that were granted", quantity(d.Grant.Memory))}
	}
	return condition{ConditionWithinGrant, metav1.ConditionTrue, ReasonWithinGrant, "no more is in use than was granted"}
}

// maxData is the API's limit on the data of a device, in bytes.
const maxData = 10 << 10

// data is what is told of a device beside its conditions, as JSON.
func data(c audit.Claim, d audit.Device) ([]byte, error) {
	s := v1alpha1.ShareStatus{
		TypeMeta:         metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.ShareStatusKind},
		GPU:              d.Grant.UUID,
		MemoryBytes:      d.Grant.Memory,
		ComputePercent:   d.Grant.Compute,
		MemoryIsolation:  string(gpu.IsolationNone),
		ComputeIsolation: string(gpu.IsolationNone),
		UsedBytes:        int64(d.Used),
		PeakBytes:        int64(d.Peak),
		Since:            metav1.NewTime(c.Since.UTC().Truncate(time.Second)),
	}
	if d.Grant.Isolation != "" {
		s.MemoryIsolation = string(d.Grant.Isolation)
	}
	if d.Grant.Form == gpu.MIG {
		s.ComputeIsolation = string(gpu.IsolationMIG)
	}
	for _, l := range d.Limits {
		if l.Err == nil {
			s.Limits = append(s.Limits, v1alpha1.LimitStatus{
				PodUID: l.Container.Pod, ContainerID: l.Container.ID, Bytes: int64(l.Bytes),
				Since: metav1.NewTime(l.Since.UTC().Truncate(time.Second)),
			})
		}
	}
	slices.SortStableFunc(s.Limits, func(a, b v1alpha1.LimitStatus) int { return b.Since.Compare(a.Since.Time) })
	for {
		encoded, err := json.Marshal(s)
		if err != nil || len(encoded) <= maxData || len(s.Limits) == 0 {
			return encoded, err
		}
		s.Limits = s.Limits[:len(s.Limits)-1]
	}
}

func quantity(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
