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

package v1alpha1

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// maxRanks is how many shares of a GPU can have a rank.
const maxRanks = 7

var (
	gpuUUID = regexp.MustCompile(`^GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	// Compute slices, memory, and a suffix: 1g.24gb, 1g.24gb+me.all, 1g.24gb-me.
	migProfile = regexp.MustCompile(`^[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z]+(\.[a-z]+)*)?$`)
)

// Validate reports every value that cannot be served, by its path. Values left
// out are valid, lists that are there and empty are not. Default should have
// filled in the defaults.
func (c *NodeConfig) Validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.NodeSelector != nil {
		errs = metav1validation.ValidateLabelSelector(c.NodeSelector,
			metav1validation.LabelSelectorValidationOptions{}, at.Child("nodeSelector"))
	}
	errs = append(errs, c.Defaults.validate(at.Child("defaults"))...)
	errs = append(errs, c.Defaults.validateMode(at.Child("defaults"))...)
	errs = append(errs, c.Defaults.Isolation.validateWhole(at.Child("defaults", "isolation"))...)
	for i, rule := range c.GPUs {
		at := at.Child("gpus").Index(i)
		errs = append(errs, rule.Match.validate(at.Child("match"))...)
		errs = append(errs, rule.validate(at)...)
		// A mode that a rule has from the defaults is of no concern to it where
		// it offers no MIG.
		complete := rule.or(c.Defaults)
		if rule.MIG.Mode != "" || slices.Contains(complete.Offer, FormMIG) {
			errs = append(errs, complete.validateMode(at)...)
		}
		if rule.Isolation.Memory != "" || rule.Isolation.Required != nil {
			errs = append(errs, complete.Isolation.validateWhole(at.Child("isolation"))...)
		}
	}
	return errs
}

func (m *GPUMatch) validate(at *field.Path) (errs field.ErrorList) {
	const all = "at least one entry; without the list every GPU matches it"
	errs = append(errs, notEmpty(at.Child("uuids"), m.UUIDs, all)...)
	errs = append(errs, notEmpty(at.Child("products"), m.Products, all)...)
	errs = append(errs, notEmpty(at.Child("architectures"), m.Architectures, all)...)
	for i, uuid := range m.UUIDs {
		if !gpuUUID.MatchString(uuid) {
			errs = append(errs, field.Invalid(at.Child("uuids").Index(i), uuid, `must be the UUID of a GPU, as "nvidia-smi -L" prints it`))
		}
	}
	for i, pattern := range m.Products {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			errs = append(errs, field.Invalid(at.Child("products").Index(i), pattern, "must be a product name or a pattern with *, ? and [...]"))
		}
	}
	for i, name := range m.Architectures {
		if name == "" {
			errs = append(errs, field.Required(at.Child("architectures").Index(i), "the name of an architecture, such as Hopper"))
		}
	}
	return errs
}

// validate looks at each field by itself.
func (c *GPUConfig) validate(at *field.Path) (errs field.ErrorList) {
	forms := []Form{FormSlice, FormGPU, FormMIG}
	offer := at.Child("offer")
	errs = append(errs, notEmpty(offer, c.Offer, fmt.Sprintf("at least one of %v; without the list the default is offered", forms))...)
	for i, form := range c.Offer {
		switch {
		case !slices.Contains(forms, form):
			errs = append(errs, field.NotSupported(offer.Index(i), form, forms))
		case slices.Contains(c.Offer[:i], form):
			errs = append(errs, field.Duplicate(offer.Index(i), form))
		}
	}
	memory := at.Child("memory")
	errs = append(errs, wholeBytes(memory.Child("min"), c.Memory.Min, 1)...)
	errs = append(errs, wholeBytes(memory.Child("step"), c.Memory.Step, 1)...)
	errs = append(errs, wholeBytes(memory.Child("reserve"), c.Memory.Reserve, 0)...)
	if r := c.Ranks; r != nil && (*r < 0 || *r > maxRanks) {
		errs = append(errs, field.Invalid(at.Child("ranks"), *r, fmt.Sprintf("must be 0 to %d", maxRanks)))
	}
	errs = append(errs, c.MIG.validate(at.Child("mig"))...)
	return append(errs, c.Isolation.validate(at.Child("isolation"))...)
}

func (i *IsolationConfig) validate(at *field.Path) (errs field.ErrorList) {
	mechanisms, reactions := []Isolation{IsolationAny, IsolationCgroup, IsolationNone}, []OverUse{OverUseReport, OverUseEvict}
	if i.Memory != "" && !slices.Contains(mechanisms, i.Memory) {
		errs = append(errs, field.NotSupported(at.Child("memory"), i.Memory, mechanisms))
	}
	if i.OnOverUse != "" && !slices.Contains(reactions, i.OnOverUse) {
		errs = append(errs, field.NotSupported(at.Child("onOverUse"), i.OnOverUse, reactions))
	}
	return errs
}

// validateWhole looks at what the fields of a complete configuration come to.
func (i IsolationConfig) validateWhole(at *field.Path) field.ErrorList {
	if i.Memory == IsolationNone && ptr.Deref(i.Required, false) {
		return field.ErrorList{field.Invalid(at.Child("required"), true, "with memory: None there is no mechanism that could be required; set memory to Any or Cgroup")}
	}
	return nil
}

func (m *MIGConfig) validate(at *field.Path) (errs field.ErrorList) {
	modes := []MIGMode{MIGKeep, MIGEnabled, MIGOnDemand}
	if m.Mode != "" && !slices.Contains(modes, m.Mode) {
		errs = append(errs, field.NotSupported(at.Child("mode"), m.Mode, modes))
	}
	profiles := at.Child("profiles")
	errs = append(errs, notEmpty(profiles, m.Profiles, "at least one name; without the list all profiles are offered")...)
	for i, name := range m.Profiles {
		switch {
		case !migProfile.MatchString(name):
			errs = append(errs, field.Invalid(profiles.Index(i), name, `must be the name of a MIG profile as "nvidia-smi mig -lgip" prints it, such as 1g.10gb`))
		case slices.Contains(m.Profiles[:i], name):
			errs = append(errs, field.Duplicate(profiles.Index(i), name))
		}
	}
	return errs
}

// notEmpty refuses a list that is there and empty: what it would mean can be
// guessed in two ways.
func notEmpty[T any](at *field.Path, list []T, detail string) field.ErrorList {
	if list != nil && len(list) == 0 {
		return field.ErrorList{field.Required(at, detail)}
	}
	return nil
}

func wholeBytes(at *field.Path, q *resource.Quantity, least int64) field.ErrorList {
	if q == nil {
		return nil
	}
	// AsInt64 gives up on "0.5Gi", which is a whole number all the same.
	if whole := resource.NewQuantity(q.Value(), q.Format); whole.Cmp(*q) != 0 || q.CmpInt64(least) < 0 {
		return field.ErrorList{field.Invalid(at, q.String(), fmt.Sprintf("must be a whole number of bytes, and not less than %d", least))}
	}
	return nil
}

// validateMode looks at what the mode and the forms of a complete configuration
// come to.
func (c GPUConfig) validateMode(at *field.Path) field.ErrorList {
	mode := at.Child("mig", "mode")
	switch {
	case c.MIG.Mode != MIGEnabled && c.MIG.Mode != MIGOnDemand:
	case !slices.Contains(c.Offer, FormMIG):
		return field.ErrorList{field.Invalid(mode, c.MIG.Mode, fmt.Sprintf("only with MIG in offer, which is %v", c.Offer))}
	case c.MIG.Mode == MIGEnabled && len(c.Offer) > 1:
		return field.ErrorList{field.Invalid(mode, c.MIG.Mode, fmt.Sprintf("a GPU that is always in MIG mode has nothing but partitions: set offer, which is %v, to [MIG], or mig.mode to OnDemand", c.Offer))}
	}
	return nil
}
