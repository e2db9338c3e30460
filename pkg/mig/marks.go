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

package mig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/state"
)

const (
	suffix     = ".json"
	tempPrefix = ".new-" // of a file that has not become a mark yet
)

// marks are files that say which instances were made here, one for each. What is
// read is always read from the disk: two plugins can live at once during an
// update.
type marks struct {
	fs     state.FS
	dir    string
	bootID string
}

// mark is an instance that was made here, or was about to be.
type mark struct {
	uuid  string // of the GPU
	place gpu.Partition
}

// file is the content of a mark. No instance outlives a boot, and with it no
// mark means anything.
type file struct {
	GPU     string `json:"gpu"`
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Size    int    `json:"size"`
	BootID  string `json:"bootID"`
}

func openMarks(o Options) (*marks, error) {
	m := &marks{fs: o.FS, dir: o.Dir, bootID: o.BootID}
	if m.fs == nil {
		m.fs = state.OS{}
	}
	if err := m.fs.MkdirAll(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of marks: %w", err)
	}
	if err := m.fs.SyncDir(filepath.Dir(m.dir)); err != nil {
		return nil, fmt.Errorf("syncing the parent of the directory of marks: %w", err)
	}
	return m, nil
}

// put makes a mark, which is on the disk when put returns.
func (m *marks) put(uuid string, p gpu.Partition) error {
	data, err := json.Marshal(file{GPU: uuid, Profile: p.Profile, Start: p.Start, Size: p.Size, BootID: m.bootID})
	if err != nil {
		return err
	}
	name := fileName(uuid, p)
	temp, path := filepath.Join(m.dir, tempPrefix+name), filepath.Join(m.dir, name)
	err = m.fs.WriteFile(temp, append(data, '\n'), 0o600)
	if err == nil {
		err = m.fs.Rename(temp, path)
	}
	if err == nil {
		err = m.fs.SyncDir(m.dir)
	}
	if err != nil {
		return fmt.Errorf("marking MIG instance %s of GPU %s as memslice's: %w", where(p), uuid, err)
	}
	return nil
}

// remove removes a mark, if there is one.
func (m *marks) remove(uuid string, p gpu.Partition) error {
	err := m.fs.Remove(filepath.Join(m.dir, fileName(uuid, p)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = m.fs.SyncDir(m.dir)
	}
	if err != nil {
		return fmt.Errorf("removing the mark of MIG instance %s of GPU %s: %w", where(p), uuid, err)
	}
	return nil
}

// has is false also where the mark cannot be read: what may be a stranger's is
// not touched.
func (m *marks) has(uuid string, p gpu.Partition) bool {
	found, err := m.read(fileName(uuid, p))
	return err == nil && found == mark{uuid, p}
}

// errVoid is a file that is no mark of this boot.
var errVoid = errors.New("not a mark of this boot")

func (m *marks) read(name string) (mark, error) {
	data, err := m.fs.ReadFile(filepath.Join(m.dir, name))
	if err != nil {
		return mark{}, fmt.Errorf("reading the mark of a MIG instance: %w", err)
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil || f.BootID != m.bootID {
		return mark{}, errVoid
	}
	found := mark{f.GPU, gpu.Partition{Profile: f.Profile, Start: f.Start, Size: f.Size}}
	if name != fileName(found.uuid, found.place) {
		return mark{}, errVoid
	}
	return found, nil
}

// all are the marks of this boot that can be read, whatever the error about
// others. What is void is removed.
func (m *marks) all() ([]mark, error) {
	entries, err := m.fs.ReadDir(m.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the marks of MIG instances: %w", err)
	}
	var all []mark
	var errs []error
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		found, err := m.read(name)
		switch {
		case errors.Is(err, errVoid):
			if err := m.fs.Remove(filepath.Join(m.dir, name)); err != nil {
				errs = append(errs, fmt.Errorf("removing a file that marks no MIG instance any more: %w", err))
			}
		case err != nil:
			errs = append(errs, err)
		default:
			all = append(all, found)
		}
	}
	return all, errors.Join(errs...)
}

// fileName is safe whatever the driver calls its GPUs and profiles.
func fileName(uuid string, p gpu.Partition) string {
	safe := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '-' {
			return r
		}
		return '_'
	}, fmt.Sprintf("%s-%s-%d-%d", uuid, p.Slug(), p.Start, p.Size))
	return safe + suffix
}
