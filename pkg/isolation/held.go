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

package isolation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/container"
)

// Share is a device of a claim: the one with that index among its grants.
type Share struct {
	Claim  types.UID `json:"claim"`
	Device int       `json:"device"`
}

// Held is a container and the shares that it was given.
type Held struct {
	Container container.Container
	Shares    []Share // ordered, each once
	Since     time.Time
}

// with is h with one more share.
func (h Held) with(s Share) Held {
	if !slices.Contains(h.Shares, s) {
		h.Shares = append(slices.Clone(h.Shares), s)
		slices.SortFunc(h.Shares, func(a, b Share) int {
			return cmp.Or(cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.Device, b.Device))
		})
	}
	return h
}

// version is that of the file format.
const version = 1

type fileV1 struct {
	Version   int       `json:"version"`
	ID        string    `json:"id"`
	Pod       string    `json:"pod"`
	Cgroup    string    `json:"cgroup"`
	PodCgroup string    `json:"podCgroup"`
	Since     time.Time `json:"since"`
	Shares    []Share   `json:"shares"`
}

func encode(h Held) ([]byte, error) {
	c := h.Container
	data, err := json.MarshalIndent(fileV1{
		Version: version, ID: c.ID, Pod: c.Pod, Cgroup: c.Cgroup, PodCgroup: c.PodCgroup,
		Since: h.Since.UTC(), Shares: h.Shares,
	}, "", "  ")
	return append(data, '\n'), err
}

// decode refuses what encode does not write.
func decode(data []byte) (Held, error) {
	var file fileV1
	if err := json.Unmarshal(data, &file); err != nil {
		return Held{}, fmt.Errorf("not JSON of a container: %w", err)
	}
	if file.Version != version {
		return Held{}, fmt.Errorf("version %d of the format, supported is %d", file.Version, version)
	}
	h := Held{
		Container: container.Container{ID: file.ID, Pod: file.Pod, Cgroup: file.Cgroup, PodCgroup: file.PodCgroup},
		Since:     file.Since,
	}
	if h.Container.ID == "" || h.Container.Pod == "" || h.Container.Cgroup == "" || h.Container.PodCgroup == "" || len(file.Shares) == 0 {
		return Held{}, errors.New("it lacks the container, its pod, a cgroup or its shares")
	}
	for _, s := range file.Shares {
		if err := claim.ValidateUID(s.Claim); err != nil {
			return Held{}, err
		}
		if s.Device < 0 {
			return Held{}, fmt.Errorf("device %d of claim %s is not possible", s.Device, s.Claim)
		}
		h = h.with(s)
	}
	return h, nil
}
