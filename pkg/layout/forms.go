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

package layout

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/memslice/memslice/api/v1alpha1"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/publish"
)

// wanted is what the configuration and the hardware come to, and why that is
// nothing, or less than is configured.
func (d *decision) wanted() (publish.Offer, error) {
	switch {
	case d.gpu.MIG == nil:
		o := d.undivided()
		if !o.Shares && !o.Whole {
			return o, d.errorf("not offered: offer is [MIG], which this GPU has not; add Slice or GPU")
		}
		return o, nil
	case d.offers(v1alpha1.FormMIG):
		return d.partitioned()
	case d.gpu.MIG.Enabled:
		return d.existing()
	}
	return d.undivided(), nil
}

// plain is an offer without any form.
func (d *decision) plain(pool string) publish.Offer {
	c := d.config
	return publish.Offer{
		GPU: d.gpu, Pool: pool,
		MemoryMin: c.Memory.Min.Value(), MemoryStep: c.Memory.Step.Value(), Reserve: c.Memory.Reserve.Value(),
		Ranks:     int(*c.Ranks),
		Isolation: d.isolation(), MustIsolate: ptr.Deref(c.Isolation.Required, false),
		Evicts: c.Isolation.OnOverUse == v1alpha1.OverUseEvict,
	}
}

func (d *decision) undivided() publish.Offer {
	o := d.plain(d.Node)
	o.Shares, o.Whole = d.offers(v1alpha1.FormSlice), d.offers(v1alpha1.FormGPU)
	return o
}

// existing is the instances of a GPU that is not offered for others. Those that
// were made here are about to be destroyed.
func (d *decision) existing() (publish.Offer, error) {
	o := d.plain(publish.PoolName(d.Node, &d.gpu))
	usable := false
	for _, i := range d.gpu.MIG.Instances {
		if !d.Made(d.gpu.UUID, i.Partition) {
			o.Instances = append(o.Instances, i)
			usable = usable || i.UUID != ""
		}
	}
	if !usable && d.unread() {
		return o, d.errorf("not offered: it is in MIG mode, and the driver does not tell which instances there are; see the log for what NVML answered")
	}
	if !usable && d.gpu.MIG.Pending {
		return o, d.errorf("not offered: it is in MIG mode and has no instances; make some (nvidia-smi mig -i %[1]s -cgi <profiles> -C), have them made for claims (offer: [MIG]), or turn MIG mode off (nvidia-smi -i %[1]s -mig 0)", d.gpu.UUID)
	}
	return o, nil
}

// partitioned is an offer of instances that are made for claims, where the MIG
// mode allows it.
func (d *decision) partitioned() (publish.Offer, error) {
	d.checkProfiles()
	mig, mode := d.gpu.MIG, d.config.MIG.Mode
	if mode == v1alpha1.MIGOnDemand && !d.switches() {
		d.problem("mig.mode OnDemand is not possible: a GPU of compute capability %s has to be reset for a change of MIG mode, which takes 9.0 (Hopper) or more; it is offered as its present mode allows",
			cmp.Or(d.gpu.CUDAComputeCapability, "unknown"))
		mode = v1alpha1.MIGKeep
	}
	if mode == v1alpha1.MIGOnDemand {
		o, incomplete := d.dynamic()
		o.Shares, o.Whole = d.offers(v1alpha1.FormSlice), d.offers(v1alpha1.FormGPU)
		return o, incomplete
	}
	// Some GPUs lose the mode when the machine boots, while their claims stay.
	lostMode := mode == v1alpha1.MIGEnabled && d.holds(gpu.MIG)
	if mig.Enabled || lostMode {
		return d.dynamic()
	}
	o := d.undivided()
	switch {
	case mig.Pending && !d.switches():
		// Which checkReset has reported.
	case mode == v1alpha1.MIGKeep && !o.Shares && !o.Whole:
		return o, d.errorf("not offered: offer is [MIG], and MIG mode is off; turn it on (nvidia-smi -i %s -mig 1), or have it turned on (mig.mode: Enabled)", d.gpu.UUID)
	case mode == v1alpha1.MIGEnabled && len(d.Held[d.gpu.UUID]) > 0:
		return o, d.errorf("not offered: MIG mode is turned on (mig.mode Enabled) once the claims that have %s for admin access have ended", devices(d.Held[d.gpu.UUID]))
	case mode == v1alpha1.MIGEnabled:
		d.enable = true
	}
	return o, nil
}

// switches tells whether a change of MIG mode needs no reset. NVIDIA's MIG user
// guide: from Hopper on.
func (d *decision) switches() bool {
	major, _, _ := strings.Cut(d.gpu.CUDAComputeCapability, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 9
}

// onDemand tells whether preparing a claim may change the MIG mode.
func (d *decision) onDemand() bool {
	switch mode := d.config.MIG.Mode; {
	case !d.offers(v1alpha1.FormMIG):
		return false
	case mode == v1alpha1.MIGEnabled:
		// To turn it on again, after a boot.
		return !d.inMIGMode() && !d.holds(gpu.Slice, gpu.Whole)
	default:
		return mode == v1alpha1.MIGOnDemand && d.switches()
	}
}

// dynamic is every place of the configured profiles.
func (d *decision) dynamic() (publish.Offer, error) {
	o := d.plain(publish.PoolName(d.Node, &d.gpu))
	o.MIGOnDemand = d.onDemand()
	for _, p := range d.gpu.MIG.Profiles {
		if names := d.config.MIG.Profiles; len(names) == 0 || slices.Contains(names, p.Name) {
			o.Profiles = append(o.Profiles, p)
		}
	}
	if len(d.gpu.MIG.Profiles) == 0 {
		return o, d.errorf("no partitions are offered: the driver tells no MIG profiles; see the log for what NVML answered")
	}
	return o, nil
}
