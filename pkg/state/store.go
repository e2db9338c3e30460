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
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/memslice/memslice/pkg/claim"
)

const (
	suffix     = ".json"
	tempPrefix = ".new-" // of a file that has not replaced its record yet
	lockName   = ".lock"
	filePerm   = 0o600
	dirPerm    = 0o700
)

// Options are settings of a Store; the zero value is right for production.
type Options struct {
	FS  FS               // nil means OS
	Now func() time.Time // nil means time.Now
}

// Store is the records in one directory. It is safe for concurrent use, also by
// several processes.
type Store struct {
	dir string
	fs  FS
	now func() time.Time

	// turn has room for the one goroutine that uses what follows.
	turn     chan struct{}
	records  map[types.UID]Record
	onGPU    map[string]map[types.UID]struct{} // by the GPU's UUID
	stamp    string                            // of the change up to which both are known
	valid    bool                              // whether both are like the files
	setAside []SetAside
}

// Open reads the records in dir, which is created where it is missing.
func Open(ctx context.Context, dir string, o Options) (*Store, error) {
	s := &Store{dir: dir, fs: o.FS, now: o.Now, turn: make(chan struct{}, 1)}
	if s.fs == nil {
		s.fs = OS{}
	}
	if s.now == nil {
		s.now = time.Now
	}
	if err := s.fs.MkdirAll(dir, dirPerm); err != nil {
		return nil, fmt.Errorf("creating the state directory: %w", err)
	}
	if err := s.fs.SyncDir(filepath.Dir(dir)); err != nil {
		return nil, fmt.Errorf("syncing the parent of the state directory: %w", err)
	}
	return s, s.Do(ctx, func(*Tx) error { return nil })
}

// Do calls fn while nobody else can use the records, in this process or in
// another. It waits for its turn as long as ctx allows. The Tx must not be used
// after fn has returned.
func (s *Store) Do(ctx context.Context, fn func(*Tx) error) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for another operation on prepared claims: %w", context.Cause(ctx))
	}
	lock, err := acquire(ctx, filepath.Join(s.dir, lockName))
	if err != nil {
		return fmt.Errorf("state directory %s: %w", s.dir, err)
	}
	defer lock.release() //nolint:errcheck // nothing was written through it that is needed later
	stamp, err := lock.stamp()
	if err != nil {
		return fmt.Errorf("state directory %s: reading the stamp: %w", s.dir, err)
	}
	if !s.valid || stamp != s.stamp {
		if err := s.load(ctx); err != nil {
			return fmt.Errorf("state directory %s: %w", s.dir, err)
		}
		s.stamp, s.valid = stamp, true
	}
	return fn(&Tx{store: s, lock: lock})
}

// Tx is the exclusive use of a Store.
type Tx struct {
	store *Store
	lock  *lockFile
}

// Get is the record of a claim.
func (tx *Tx) Get(uid types.UID) (Record, bool) {
	r, ok := tx.store.records[uid]
	return r.clone(), ok
}

// All is every record, ordered by UID.
func (tx *Tx) All() []Record {
	var records []Record
	for _, uid := range slices.Sorted(maps.Keys(tx.store.records)) {
		records = append(records, tx.store.records[uid].clone())
	}
	return records
}

// OnGPU goes through the records that have a grant on a GPU, in any order. They
// are not copies, and must not be changed or kept.
func (tx *Tx) OnGPU(uuid string) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for uid := range tx.store.onGPU[uuid] {
			if !yield(tx.store.records[uid]) {
				return
			}
		}
	}
}

// SetAside is the files set aside since the last call.
func (tx *Tx) SetAside() []SetAside {
	files := tx.store.setAside
	tx.store.setAside = nil
	return files
}

// Put adds or replaces the record of a claim. It is on the disk when Put
// returns; after an error either the old or the new one is.
func (tx *Tx) Put(r Record) error {
	data, err := encode(r)
	if err != nil {
		return fmt.Errorf("record of claim %s/%s: %w", r.Namespace, r.Name, err)
	}
	err = tx.change(func(s *Store) error {
		temp := filepath.Join(s.dir, tempPrefix+string(r.UID)+suffix)
		if err := s.fs.WriteFile(temp, data, filePerm); err != nil {
			return err
		}
		if err := s.fs.Rename(temp, s.path(r.UID)); err != nil {
			return err
		}
		return s.fs.SyncDir(s.dir)
	})
	if err != nil {
		return fmt.Errorf("writing the record of claim %s/%s: %w", r.Namespace, r.Name, err)
	}
	tx.store.forget(r.UID)
	tx.store.remember(r.clone())
	return nil
}

// Delete removes the record of a claim, if there is one. It is gone from the
// disk when Delete returns; after an error it may or may not be.
func (tx *Tx) Delete(uid types.UID) error {
	if err := claim.ValidateUID(uid); err != nil {
		return err
	}
	if _, known := tx.store.records[uid]; !known && tx.store.valid {
		return nil
	}
	err := tx.change(func(s *Store) error {
		if err := s.fs.Remove(s.path(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return s.fs.SyncDir(s.dir)
	})
	if err != nil {
		return fmt.Errorf("removing the record of claim %s: %w", uid, err)
	}
	tx.store.forget(uid)
	return nil
}

// change announces a change to other processes before it is made, so that one
// that is cut short is noticed too. What is known is not relied on after an
// error.
func (tx *Tx) change(do func(*Store) error) error {
	s := tx.store
	stamp, err := tx.lock.newStamp()
	if err == nil {
		err = do(s)
	}
	if err != nil {
		s.valid = false
		return err
	}
	s.stamp = stamp
	return nil
}

func (s *Store) remember(r Record) {
	s.records[r.UID] = r
	for _, g := range r.Grants {
		if s.onGPU[g.UUID] == nil {
			s.onGPU[g.UUID] = make(map[types.UID]struct{})
		}
		s.onGPU[g.UUID][r.UID] = struct{}{}
	}
}

func (s *Store) forget(uid types.UID) {
	for _, g := range s.records[uid].Grants {
		delete(s.onGPU[g.UUID], uid)
	}
	delete(s.records, uid)
}

// path is safe: no UID gets here that claim.ValidateUID refuses.
func (s *Store) path(uid types.UID) string {
	return filepath.Join(s.dir, string(uid)+suffix)
}
