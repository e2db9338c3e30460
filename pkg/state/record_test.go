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
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/memslice/memslice/pkg/golden"
	"github.com/memslice/memslice/pkg/gpu"
)

// everything has every field set.
func everything() Record {
	return Record{
		UID: "8a1f0d3e-5b1c-4c0e-9a57-0f5b0c3d2e1a", Namespace: "team-a", Name: "small-x7k2p",
		Phase: Prepared, BootID: "0b9d2c1e-7c3a-4a58-8d0e-2f6b1c0a9e77",
		CreatedAt: time.Date(2026, 11, 30, 12, 34, 56, 789, time.UTC),
		Grants: []gpu.Grant{
			{Request: "gpu/large", Pool: "node-1", Device: "gpu-1f5e9c0a-77b2-slice", ShareID: "5d1c8c6e-1111-4222-8333-444455556666",
				Form: gpu.Slice, UUID: "GPU-1f5e9c0a-77b2-4d0e-9f8a-0123456789ab", Memory: 4294967297, Compute: 25},
			{Request: "whole", Pool: "node-1", Device: "gpu-2a5e9c0a-77b2", Form: gpu.Whole, UUID: "GPU-2a5e9c0a-77b2-4d0e-9f8a-0123456789ab", Memory: 80 << 30},
			{Request: "look", Pool: "node-1", Device: "gpu-2a5e9c0a-77b2", Form: gpu.Whole, UUID: "GPU-2a5e9c0a-77b2-4d0e-9f8a-0123456789ab", AdminAccess: true},
		},
	}
}

// partitions has MIG devices, made for the claim and made by an administrator.
func partitions() Record {
	r := everything()
	r.Grants = []gpu.Grant{
		{Request: "a", Pool: "node-1/gpu-1f5e9c0a-77b2", Device: "gpu-1f5e9c0a-77b2-mig-1g-10gb-0", Form: gpu.MIG,
			UUID: "GPU-1f5e9c0a-77b2-4d0e-9f8a-0123456789ab", Memory: 10468982784, Partition: gpu.Partition{Profile: "1g.10gb", Size: 1}},
		{Request: "b", Pool: "node-1/gpu-2a5e9c0a-77b2", Device: "gpu-2a5e9c0a-77b2-mig-3g-40gb-4-1", Form: gpu.MIG,
			UUID: "GPU-2a5e9c0a-77b2-4d0e-9f8a-0123456789ab", Memory: 42144366592, Partition: gpu.Partition{Profile: "3g.40gb", Start: 4, Size: 4},
			Existing: "MIG-9e1f33c4-5a77-5c1d-8b8e-0a1b2c3d4e5f"},
		{Request: "look", Pool: "node-1/gpu-1f5e9c0a-77b2", Device: "gpu-1f5e9c0a-77b2-mig-2g-20gb-2", Form: gpu.MIG,
			UUID: "GPU-1f5e9c0a-77b2-4d0e-9f8a-0123456789ab", AdminAccess: true, Partition: gpu.Partition{Profile: "2g.20gb", Start: 2, Size: 2}},
	}
	return r
}

// enforced has shares, and what holds them.
func enforced() Record {
	r := everything()
	r.Grants[0].Isolation, r.Grants[1].Isolation, r.Grants[2].Isolation = gpu.IsolationCgroup, gpu.IsolationNone, gpu.IsolationNone
	return r
}

// TestGolden holds the format to what releases have written. A file that was
// released must be readable for ever: it is never updated, and what a later
// release writes gets a golden file of its own.
func TestGolden(t *testing.T) {
	for name, record := range map[string]Record{"v1.json": everything(), "v1-mig.json": partitions(), "v1-isolation.json": enforced()} {
		path := filepath.Join("testdata", name)
		data, err := encode(record)
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, path, data)
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(want)
		if err != nil {
			t.Fatalf("%s is no longer read: %v", name, err)
		}
		if diff := cmp.Diff(record, got); diff != "" {
			t.Errorf("read from %s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDecodeLaterMinor(t *testing.T) {
	data, err := encode(everything())
	if err != nil {
		t.Fatal(err)
	}
	later := strings.Replace(string(data), `"phase"`, `"added later": {"x": 1}, "phase"`, 1)
	got, err := decode([]byte(later))
	if err != nil {
		t.Fatalf("a field that a later release added to the version: %v", err)
	}
	if diff := cmp.Diff(everything(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	whole, err := encode(everything())
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) string {
		if !strings.Contains(string(whole), old) {
			t.Fatalf("no %q in the file", old)
		}
		return strings.ReplaceAll(string(whole), old, new)
	}
	for name, tc := range map[string]struct{ data, want string }{
		"empty":                      {"", "empty"},
		"cut":                        {string(whole[:len(whole)/2]), "not JSON of a prepared claim"},
		"zeros":                      {strings.Repeat("\x00", 512), "not JSON of a prepared claim"},
		"twice":                      {string(whole) + string(whole), "not JSON of a prepared claim"},
		"JSON of others":             {`{"kind":"Pod","apiVersion":"v1"}`, "version 0"},
		"null":                       {"null", "version 0"},
		"a list":                     {"[]", "not JSON of a prepared claim"},
		"a later version":            {replace(`"version": 1`, `"version": 2`), "version 2 of the format, supported is 1"},
		"an unsafe UID":              {replace("8a1f0d3e-5b1c-4c0e-9a57-0f5b0c3d2e1a", "../../x"), `"../../x"`},
		"no name":                    {replace("small-x7k2p", ""), "name"},
		"no phase":                   {replace("Prepared", ""), "phase"},
		"no boot ID":                 {replace("0b9d2c1e-7c3a-4a58-8d0e-2f6b1c0a9e77", ""), "boot ID"},
		"no time":                    {replace("2026-11-30T12:34:56.000000789Z", "0001-01-01T00:00:00Z"), "time"},
		"no grants":                  {`{"version":1,"claim":{"uid":"a","namespace":"b","name":"c"},"phase":"Prepared","bootID":"d","createdAt":"2026-11-30T12:34:56Z"}`, "no grants"},
		"a grant of no GPU":          {replace("GPU-1f5e9c0a-77b2-4d0e-9f8a-0123456789ab", ""), "grant 0"},
		"negative memory":            {replace("4294967297", "-1"), "grant 0"},
		"memory of 65 bits":          {replace("4294967297", "36893488147419103232"), "not JSON of a prepared claim"},
		"fractional memory":          {replace("4294967297", "0.5"), "not JSON of a prepared claim"},
		"compute above 100 %":        {replace(`"computePercent": 25`, `"computePercent": 101`), "grant 0"},
		"a form it has no place for": {replace(`"form": "slice"`, `"form": "mig"`), "grant 0: partition"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode([]byte(tc.data))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that says %q", err, tc.want)
			}
		})
	}
}

// FuzzDecode: what is read as a record can be written, and says the same then.
func FuzzDecode(f *testing.F) {
	data, err := encode(everything())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:100])
	if data, err = encode(partitions()); err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":1,"claim":{"uid":"..","namespace":"b","name":"c"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data)
		if err != nil {
			return
		}
		again, err := encode(r)
		if err != nil {
			t.Fatalf("read but not to be written: %v", err)
		}
		back, err := decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if !r.CreatedAt.Equal(back.CreatedAt) {
			t.Errorf("time %v became %v", r.CreatedAt, back.CreatedAt)
		}
		back.CreatedAt = r.CreatedAt
		if diff := cmp.Diff(r, back); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}

// TestEveryFieldIsKept fails when a field is added to a grant or a record that
// the file does not have: a prepared claim would no longer be recognised.
func TestEveryFieldIsKept(t *testing.T) {
	grant := gpu.Grant{}
	fill(t, reflect.ValueOf(&grant).Elem())
	want := everything()
	want.Grants = []gpu.Grant{grant}
	fill(t, reflect.ValueOf(&want).Elem())
	want.Phase = Prepared
	data, err := encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// fill sets what has its zero value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f := v.Field(i)
		if !f.IsZero() {
			continue
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Int, reflect.Int64:
			f.SetInt(1)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Struct:
			fill(t, f)
		default:
			t.Fatalf("field %s: the test cannot fill a %s", v.Type().Field(i).Name, f.Kind())
		}
	}
}
