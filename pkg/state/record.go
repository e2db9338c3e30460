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

package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/gpu"
)

// Phase is how far the preparation of a claim has come.
type Phase string

const (
	// Preparing is the intent: something of the claim may be on the host.
	Preparing Phase = "Preparing"
	// Prepared is the promise: all of the claim is on the host, unless that has
	// been restarted since.
	Prepared Phase = "Prepared"
)

// Record is what is kept of one claim.
type Record struct {
	UID       types.UID
	Namespace string
	Name      string

	Phase     Phase
	BootID    string // of the boot in which the claim was prepared last
	CreatedAt time.Time
	Grants    []gpu.Grant
}

// version is that of the file format. Fields may be added to a version; a
// change that an older release would misread needs a new one, and the old one
// stays readable.
const version = 1

type fileV1 struct {
	Version   int       `json:"version"`
	Claim     claimV1   `json:"claim"`
	Phase     string    `json:"phase"`
	BootID    string    `json:"bootID"`
	CreatedAt time.Time `json:"createdAt"`
	Grants    []grantV1 `json:"grants"`
}

type claimV1 struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

type grantV1 struct {
	Request        string `json:"request"`
	Pool           string `json:"pool"`
	Device         string `json:"device"`
	ShareID        string `json:"shareID,omitempty"`
	Form           string `json:"form"`
	UUID           string `json:"uuid"`
	MemoryBytes    int64  `json:"memoryBytes"`
	ComputePercent int64  `json:"computePercent,omitempty"`
	AdminAccess    bool   `json:"adminAccess,omitempty"`

	// Of MIG devices, since that form exists.
	Partition *partitionV1 `json:"partition,omitempty"`
	Existing  string       `json:"existing,omitempty"`

	// Since amounts are enforced.
	Isolation string `json:"isolation,omitempty"`
}

type partitionV1 struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Size    int    `json:"size"`
}

// encode is the content of a record's file.
func encode(r Record) ([]byte, error) {
	if err := validate(r); err != nil {
		return nil, err
	}
	file := fileV1{
		Version:   version,
		Claim:     claimV1{UID: string(r.UID), Namespace: r.Namespace, Name: r.Name},
		Phase:     string(r.Phase),
		BootID:    r.BootID,
		CreatedAt: r.CreatedAt.UTC(),
	}
	for _, g := range r.Grants {
		file.Grants = append(file.Grants, encodeGrant(g))
	}
	data, err := json.MarshalIndent(file, "", "  ")
	return append(data, '\n'), err
}

// decode reads a file of any version so far.
func decode(data []byte) (Record, error) {
	var file fileV1
	if len(data) == 0 {
		return Record{}, errors.New("the file is empty")
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return Record{}, fmt.Errorf("not JSON of a prepared claim: %w", err)
	}
	if file.Version != version {
		return Record{}, fmt.Errorf("version %d of the format, supported is %d", file.Version, version)
	}
	r := Record{
		UID: types.UID(file.Claim.UID), Namespace: file.Claim.Namespace, Name: file.Claim.Name,
		Phase: Phase(file.Phase), BootID: file.BootID, CreatedAt: file.CreatedAt,
	}
	for _, g := range file.Grants {
		r.Grants = append(r.Grants, decodeGrant(g))
	}
	return r, validate(r)
}

func encodeGrant(g gpu.Grant) grantV1 {
	file := grantV1{
		Request: g.Request, Pool: g.Pool, Device: g.Device, ShareID: g.ShareID,
		Form: string(g.Form), UUID: g.UUID,
		MemoryBytes: g.Memory, ComputePercent: g.Compute, AdminAccess: g.AdminAccess,
		Existing: g.Existing, Isolation: string(g.Isolation),
	}
	if g.Partition != (gpu.Partition{}) {
		file.Partition = &partitionV1{Profile: g.Partition.Profile, Start: g.Partition.Start, Size: g.Partition.Size}
	}
	return file
}

func decodeGrant(file grantV1) gpu.Grant {
	g := gpu.Grant{
		Request: file.Request, Pool: file.Pool, Device: file.Device, ShareID: file.ShareID,
		Form: gpu.Form(file.Form), UUID: file.UUID,
		Memory: file.MemoryBytes, Compute: file.ComputePercent, AdminAccess: file.AdminAccess,
		Existing: file.Existing, Isolation: gpu.Isolation(file.Isolation),
	}
	if file.Partition != nil {
		g.Partition = gpu.Partition{Profile: file.Partition.Profile, Start: file.Partition.Start, Size: file.Partition.Size}
	}
	return g
}

// validate refuses what nobody has written as a record, to tell files of others
// and half of a record from a whole one.
func validate(r Record) error {
	if err := claim.ValidateUID(r.UID); err != nil {
		return err
	}
	switch {
	case r.Namespace == "" || r.Name == "":
		return errors.New("no namespace or no name of the claim")
	case r.Phase != Preparing && r.Phase != Prepared:
		return fmt.Errorf("unknown phase %q", r.Phase)
	case r.BootID == "":
		return errors.New("no boot ID")
	case r.CreatedAt.IsZero():
		return errors.New("no time of creation")
	case len(r.Grants) == 0:
		return errors.New("no grants")
	}
	for i, g := range r.Grants {
		if err := validateGrant(g); err != nil {
			return fmt.Errorf("grant %d: %w", i, err)
		}
	}
	return nil
}

func validateGrant(g gpu.Grant) error {
	switch {
	case g.Request == "" || g.Pool == "" || g.Device == "" || g.Form == "" || g.UUID == "":
		return errors.New("it lacks its request, pool, device, form or UUID")
	case g.Memory < 0 || g.Compute < 0 || g.Compute > 100:
		return fmt.Errorf("%d bytes and %d%% compute are not possible", g.Memory, g.Compute)
	case g.Form == gpu.MIG && (g.Partition.Profile == "" || g.Partition.Start < 0 || g.Partition.Size < 1):
		return fmt.Errorf("partition %q of %d memory slices from %d is not possible", g.Partition.Profile, g.Partition.Size, g.Partition.Start)
	}
	return nil
}

func (r Record) clone() Record {
	r.Grants = slices.Clone(r.Grants)
	return r
}
