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
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockRetry is the time between two attempts to get a lock that another process
// holds.
const lockRetry = 5 * time.Millisecond

// lockFile is a file that is locked against all other users of the directory.
// Its content is the stamp: a random word, new with each change. It need not
// survive a power cut, since no index does.
type lockFile struct{ file *os.File }

func acquire(ctx context.Context, path string) (*lockFile, error) {
	for {
		lock, err := tryAcquire(path)
		if lock != nil || err != nil {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the lock %s, which another instance of the plugin holds: %w", path, context.Cause(ctx))
		case <-time.After(lockRetry):
		}
	}
}

// tryAcquire returns nil where another process has the lock.
func tryAcquire(path string) (*lockFile, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			return nil, nil
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	if !isAt(path, file) {
		file.Close()
		return nil, nil
	}
	return &lockFile{file}, nil
}

// isAt tells whether path still leads to the file: whoever cleans up the
// directory may have removed it, and another process have made a new one.
func isAt(path string, file *os.File) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(path)
	return err == nil && os.SameFile(opened, current)
}

// release gives the lock up.
func (l *lockFile) release() error { return l.file.Close() }

// stamp is that of the last change.
func (l *lockFile) stamp() (string, error) {
	const enough = 64
	data, err := io.ReadAll(io.NewSectionReader(l.file, 0, enough))
	return string(data), err
}

// newStamp announces a change, and returns its stamp.
func (l *lockFile) newStamp() (string, error) {
	stamp := rand.Text()
	_, err := l.file.WriteAt([]byte(stamp), 0)
	return stamp, err
}
