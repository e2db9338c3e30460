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
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

const (
	fileName = "state.json"
	lockName = "lock"
)

// ErrNoState says that the directory holds no document.
var ErrNoState = errors.New("no simulated driver here: create one with 'fakegpu init'")

// Store is the directory that the document lives in. A Store is safe for
// concurrent use, and any number of processes may have one for a directory.
type Store struct {
	dir string

	mu     sync.Mutex
	cached *State
	seen   stamp
}

// stamp tells documents apart without reading them: every write makes a new
// file.
type stamp struct {
	device, inode uint64
	size          int64
	modified      syscall.Timespec
}

// Open returns the store of a directory, which need not exist yet.
func Open(dir string) *Store { return &Store{dir: dir} }

// Path is the document's file.
func (s *Store) Path() string { return filepath.Join(s.dir, fileName) }

// Load returns the current document, which callers must not change. It reads
// the file only when another one has taken its place. The error is ErrNoState
// when there is none.
func (s *Store) Load() (*State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	current, err := s.stat()
	if err != nil {
		return nil, err
	}
	if s.cached != nil && current == s.seen {
		return s.cached, nil
	}
	// A newer file may take its place after the stat; then the next Load
	// sees another stamp and reads again.
	document, err := s.read()
	if err != nil {
		return nil, err
	}
	s.cached, s.seen = document, current
	return document, nil
}

// Update changes the document: other writers wait, readers see the old one or
// the new one. Nothing is written when change fails.
func (s *Store) Update(change func(*State) error) error {
	return s.locked(func() error {
		document, err := s.read()
		if err != nil {
			return err
		}
		if err := change(document); err != nil {
			return err
		}
		return s.write(document)
	})
}

// Create makes the directory and the document in it. With replace, a document
// that is there already is overwritten, whatever it holds; without, Create
// passes it to keep, which says whether it will do.
func (s *Store) Create(document *State, replace bool, keep func(*State) error) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("making the state directory: %w", err)
	}
	return s.locked(func() error {
		if !replace {
			existing, err := s.read()
			if err == nil {
				return keep(existing)
			}
			if !errors.Is(err, ErrNoState) {
				return err
			}
		}
		return s.write(document)
	})
}

// locked runs do while no other process changes the document.
func (s *Store) locked(do func() error) error {
	lock, err := os.OpenFile(filepath.Join(s.dir, lockName), os.O_RDWR|os.O_CREATE, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", s.dir, ErrNoState)
	}
	if err != nil {
		return fmt.Errorf("opening the state's lock: %w", err)
	}
	defer lock.Close()
	for {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("locking the state %s: %w", s.dir, err)
	}
	return do()
}

func (s *Store) stat() (stamp, error) {
	var info syscall.Stat_t
	if err := syscall.Stat(s.Path(), &info); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return stamp{}, fmt.Errorf("%s: %w", s.dir, ErrNoState)
		}
		return stamp{}, fmt.Errorf("looking at the state %s: %w", s.Path(), err)
	}
	return stamp{device: info.Dev, inode: info.Ino, size: info.Size, modified: info.Mtim}, nil
}

func (s *Store) read() (*State, error) {
	data, err := os.ReadFile(s.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", s.dir, ErrNoState)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	var document State
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, fmt.Errorf("reading the state %s: %w; 'fakegpu init --force' makes a new one", s.Path(), err)
	}
	if document.Version != FormatVersion {
		return nil, fmt.Errorf("the state %s has version %d, this program knows %d; 'fakegpu init --force' makes a new one",
			s.Path(), document.Version, FormatVersion)
	}
	return &document, nil
}

// write replaces the file so that a crash at any point leaves the old or the
// new document.
func (s *Store) write(document *State) error {
	data, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}
	temporary, err := os.CreateTemp(s.dir, fileName+".*")
	if err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(append(data, '\n'))
	err = errors.Join(err, temporary.Chmod(0o644), temporary.Sync(), temporary.Close())
	if err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	if err := os.Rename(temporary.Name(), s.Path()); err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	return syncDir(s.dir)
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	return nil
}
