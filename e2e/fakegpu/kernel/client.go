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

package kernel

import (
	"encoding/json"
	"fmt"
	"net"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

// Device is a GPU that this process has open.
type Device struct {
	View
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

// OpenDevice opens the GPU whose device node has a minor number. It is open until
// the process ends, or closes it.
func OpenDevice(socket string, minor int) (*Device, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("no NVIDIA driver answers: %w", err)
	}
	d := &Device{conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}
	if err := d.ask(request{Operation: Open, Minor: minor}); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open /dev/nvidia%d: %w", minor, err)
	}
	return d, nil
}

// Close gives back all memory.
func (d *Device) Close() error { return d.conn.Close() }

// Allocate takes memory. The error is a *state.Refusal with the result
// InsufficientMemory where there is not enough.
func (d *Device) Allocate(bytes uint64) error {
	return d.ask(request{Operation: Allocate, Bytes: bytes})
}

// Free gives memory back.
func (d *Device) Free(bytes uint64) error { return d.ask(request{Operation: Free, Bytes: bytes}) }

// Refresh looks again at what there is.
func (d *Device) Refresh() error { return d.ask(request{Operation: Info}) }

func (d *Device) ask(r request) error {
	if err := d.out.Encode(r); err != nil {
		return fmt.Errorf("ask the NVIDIA driver: %w", err)
	}
	var a answer
	if err := d.in.Decode(&a); err != nil {
		return fmt.Errorf("the NVIDIA driver's answer: %w", err)
	}
	if a.Result != state.Success {
		return &state.Refusal{Result: a.Result, Reason: a.Reason}
	}
	d.View = a.View
	return nil
}
