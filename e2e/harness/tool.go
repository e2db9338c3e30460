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

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tools runs the programs in a folder.
type tools struct {
	bin string
	env []string // in addition to this process's
}

// failureLines is how much of what a program printed its error repeats.
const failureLines = 20

// run returns what the program printed to its standard output. What it prints to
// standard error goes to progress, line by line, if that is not nil.
func (t tools) run(ctx context.Context, progress func(line string), name string, args ...string) ([]byte, error) {
	command, err := t.command(ctx, name, args...)
	if err != nil {
		return nil, err
	}
	var stdout bytes.Buffer
	stderr := &lineWriter{each: progress}
	command.Stdout, command.Stderr = &stdout, stderr
	if err := command.Run(); err != nil {
		said := strings.TrimSpace(stderr.all.String())
		if said == "" {
			said = strings.TrimSpace(stdout.String())
		}
		return stdout.Bytes(), fmt.Errorf("%s %s: %w:\n%s", name, strings.Join(args, " "), err, lastLines(said, failureLines))
	}
	return stdout.Bytes(), nil
}

func (t tools) command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	path := filepath.Join(t.bin, name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not there: run \"make build\" first", path)
	}
	command := exec.CommandContext(ctx, path, args...)
	command.Env = append(os.Environ(), t.env...)
	return command, nil
}

// lineWriter keeps what is written and passes on each line.
type lineWriter struct {
	all     bytes.Buffer
	partial string
	each    func(line string)
}

var _ io.Writer = (*lineWriter)(nil)

func (w *lineWriter) Write(p []byte) (int, error) {
	w.all.Write(p)
	w.partial += string(p)
	for {
		line, rest, complete := strings.Cut(w.partial, "\n")
		if !complete {
			return len(p), nil
		}
		w.partial = rest
		if line = strings.TrimSpace(line); line != "" && w.each != nil {
			w.each(line)
		}
	}
}

// lastLines indents the last lines of a text.
func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > count {
		lines = append([]string{"..."}, lines[len(lines)-count:]...)
	}
	return "    " + strings.Join(lines, "\n    ")
}
