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

package cdi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/gpu"
)

// Vendor and Class make up the kind of every spec of this package, which is
// also the first part of its CDI devices' names.
const (
	Vendor = gpu.DriverName
	Class  = "claim"

	kind      = Vendor + "/" + Class
	extension = ".json"
)

// Source is where the edits come from that give a container its GPUs.
type Source interface {
	// Spec has a device for each MIG instance, and for each GPU that is assigned
	// otherwise, named by its UUID, and what all of them need in the edits of the
	// spec itself. Paths are those of the host. What is returned belongs to the
	// caller.
	Spec(ctx context.Context, assignments []gpu.Assignment) (*specs.Spec, error)
}

// Confine is the hooks that have a container held to what it was granted, for the
// device with that index of a claim.
type Confine func(claim types.UID, device int) specs.ContainerEdits

// Specs is the CDI specs of claims in one directory. Changes of one claim's spec
// must not run at the same time; those of different claims may.
type Specs struct {
	dir     string
	cache   *cdi.Cache
	source  Source
	confine Confine
}

// New is the specs in dir, a directory in which the container runtime looks for
// them.
func New(dir string, source Source, confine Confine) (*Specs, error) {
	// Without the refresh, which would read every spec of every driver after
	// each change in the directory.
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("CDI directory %s: %w", dir, err)
	}
	return &Specs{dir: dir, cache: cache, source: source, confine: confine}, nil
}

// Write writes the spec of a claim anew. It returns the qualified names of the
// CDI devices, in the order of the assignments. The spec is replaced as a whole
// or, on an error, not at all.
func (s *Specs) Write(ctx context.Context, uid types.UID, assignments []gpu.Assignment) ([]string, error) {
	if err := claim.ValidateUID(uid); err != nil {
		return nil, err
	}
	for _, a := range assignments {
		// With the GPU's UUID instead, a container would see all of it.
		if a.Form == gpu.MIG && a.Instance.UUID == "" {
			return nil, fmt.Errorf("CDI spec: request %q: no MIG instance is known for %s at memory slice %d of GPU %s", a.Request, a.Partition.Profile, a.Partition.Start, a.UUID)
		}
	}
	source, err := s.source.Spec(ctx, assignments)
	if err != nil {
		return nil, err
	}
	spec, ids, err := build(uid, assignments, source, s.confine)
	if err != nil {
		return nil, fmt.Errorf("CDI spec: %w", err)
	}
	if err := s.cache.WriteSpec(spec, fileName(uid)); err != nil {
		return nil, fmt.Errorf("CDI spec %s: %w", s.path(uid), err)
	}
	klog.FromContext(ctx).V(4).Info("Wrote CDI spec", "path", s.path(uid), "devices", ids)
	return ids, nil
}

// Remove removes the spec of a claim, if there is one.
func (s *Specs) Remove(uid types.UID) error {
	if err := claim.ValidateUID(uid); err != nil {
		return err
	}
	if err := s.cache.RemoveSpec(fileName(uid)); err != nil {
		return fmt.Errorf("removing CDI spec: %w", err)
	}
	return nil
}

// Exists tells whether a claim has a spec.
func (s *Specs) Exists(uid types.UID) (bool, error) {
	if err := claim.ValidateUID(uid); err != nil {
		return false, err
	}
	_, err := os.Stat(s.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Orphans is the claims that have a spec and are not known. A file that is not
// of this package's kind is no spec of a claim, whatever its name.
func (s *Specs) Orphans(known func(types.UID) bool) ([]types.UID, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing CDI specs: %w", err)
	}
	var orphans []types.UID
	for _, entry := range entries {
		name, ours := strings.CutPrefix(entry.Name(), cdi.GenerateTransientSpecName(Vendor, Class, ""))
		name, json := strings.CutSuffix(name, extension)
		uid := types.UID(name)
		if ours && json && entry.Type().IsRegular() && claim.ValidateUID(uid) == nil && !known(uid) && s.isOurs(uid) {
			orphans = append(orphans, uid)
		}
	}
	return orphans, nil
}

func (s *Specs) isOurs(uid types.UID) bool {
	data, err := os.ReadFile(s.path(uid))
	if err != nil {
		return false
	}
	var spec struct{ Kind string }
	return json.Unmarshal(data, &spec) == nil && spec.Kind == kind
}

func (s *Specs) path(uid types.UID) string { return filepath.Join(s.dir, fileName(uid)) }

func fileName(uid types.UID) string {
	return cdi.GenerateTransientSpecName(Vendor, Class, string(uid)) + extension
}
