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
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/klog/v2"
)

const (
	suffix     = ".json"
	tempPrefix = ".new-"
)

// records are the containers that were given shares, a file for each, named by
// the container's ID. No container outlives a boot, so that nothing has to be on
// the disk for good.
type records struct{ dir string }

func openRecords(dir string) (records, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return records{}, fmt.Errorf("make the directory of containers: %w", err)
	}
	return records{dir}, nil
}

// all are those that can be read. What else is there is removed: no container
// was started on the strength of it.
func (r records) all(ctx context.Context) ([]Held, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("list the containers that hold shares: %w", err)
	}
	var all []Held
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, tempPrefix) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read a container that holds shares: %w", err)
		}
		held, err := decode(data)
		if err == nil && name != held.Container.ID+suffix {
			err = fmt.Errorf("it is about container %s", held.Container.ID)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Removing a file that says nothing of a container", "file", filepath.Join(r.dir, name))
			if err := os.Remove(filepath.Join(r.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("remove a file that says nothing of a container: %w", err)
			}
			continue
		}
		all = append(all, held)
	}
	return all, nil
}

func (r records) put(h Held) error {
	data, err := encode(h)
	if err != nil {
		return err
	}
	temp := filepath.Join(r.dir, tempPrefix+h.Container.ID)
	if err = os.WriteFile(temp, data, 0o600); err == nil {
		err = os.Rename(temp, filepath.Join(r.dir, h.Container.ID+suffix))
	}
	if err != nil {
		return fmt.Errorf("note which shares container %s has: %w", h.Container.ID, err)
	}
	return nil
}

func (r records) remove(h Held) error {
	err := os.Remove(filepath.Join(r.dir, h.Container.ID+suffix))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget container %s: %w", h.Container.ID, err)
	}
	return nil
}
