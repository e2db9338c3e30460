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
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

const (
	// damagedDir is where files go that are not records, and damagedKept how
	// many of them stay there.
	damagedDir  = "damaged"
	damagedKept = 32

	// maxFileSize is far above that of a claim with the 32 devices it can have.
	maxFileSize = 1 << 20
)

// SetAside is a file that was found in the state directory and is not a record.
type SetAside struct {
	Name  string // in the state directory
	Moved string // its path now; empty where it could not be moved
	Err   error  // what is wrong with it
}

// load reads all records anew. One that cannot be read is set aside and does
// not hinder the others.
func (s *Store) load(ctx context.Context) error {
	entries, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return err
	}
	s.records = make(map[types.UID]Record, len(entries))
	s.onGPU = make(map[string]map[types.UID]struct{})
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case strings.HasPrefix(name, tempPrefix):
			// Left by a crash before it became a record. The next write to it
			// starts over, so that a failure here is of no consequence.
			_ = s.fs.Remove(filepath.Join(s.dir, name))
			continue
		case name == lockName, entry.IsDir() && !strings.HasSuffix(name, suffix):
			continue
		}
		record, err := s.read(entry)
		switch {
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
			return err // no fault of the file's
		case err != nil:
			s.putAside(ctx, name, err)
		default:
			s.remember(record)
		}
	}
	klog.FromContext(ctx).V(2).Info("Read the prepared claims", "directory", s.dir, "claims", len(s.records))
	return nil
}

func (s *Store) read(entry fs.DirEntry) (Record, error) {
	info, err := entry.Info()
	if err != nil {
		return Record{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileSize {
		return Record{}, fmt.Errorf("not a regular file of at most %d bytes", maxFileSize)
	}
	data, err := s.fs.ReadFile(filepath.Join(s.dir, entry.Name()))
	if err != nil {
		return Record{}, err
	}
	record, err := decode(data)
	if err == nil && entry.Name() != string(record.UID)+suffix {
		return Record{}, fmt.Errorf("it has the record of claim %s/%s, whose file would be %s%s", record.Namespace, record.Name, record.UID, suffix)
	}
	return record, err
}

// putAside moves a file out of the way, and keeps the newest of those that were.
func (s *Store) putAside(ctx context.Context, name string, reason error) {
	logger := klog.FromContext(ctx)
	dir := filepath.Join(s.dir, damagedDir)
	// Sorted by name is sorted by age.
	to := filepath.Join(dir, s.now().UTC().Format("20060102T150405.000000000Z")+"-"+name)
	err := s.fs.MkdirAll(dir, dirPerm)
	if err == nil {
		err = s.fs.Rename(filepath.Join(s.dir, name), to)
	}
	if err != nil {
		s.setAside = append(s.setAside, SetAside{Name: name, Err: reason})
		logger.Error(errors.Join(reason, err), "A file in the state directory is not a record of a prepared claim, and cannot be set aside; it is ignored", "directory", s.dir, "file", name)
		return
	}
	s.setAside = append(s.setAside, SetAside{Name: name, Moved: to, Err: reason})
	logger.Error(reason, "A file in the state directory is not a record of a prepared claim and was set aside; the record of a claim that is in use is made anew", "directory", s.dir, "file", name, "movedTo", to)

	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		logger.Error(err, "Cannot list the files set aside", "directory", dir)
		return
	}
	for _, old := range entries[:max(0, len(entries)-damagedKept)] {
		if err := s.fs.Remove(filepath.Join(dir, old.Name())); err != nil {
			logger.Error(err, "Cannot remove an old file that was set aside", "directory", dir, "file", old.Name())
		}
	}
}
