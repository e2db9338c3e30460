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

package v1alpha1

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var shareType = metav1.TypeMeta{APIVersion: APIVersion, Kind: ShareConfigKind}

func TestDecodeShareConfig(t *testing.T) {
	const head = `"apiVersion":"memslice.dev/v1alpha1","kind":"ShareConfig"`
	for name, tc := range map[string]struct {
		raw  string
		want *ShareConfig
		errs []string // each is part of the message
	}{
		"everything set": {
			raw:  `{` + head + `,"isolation":"Cgroup"}`,
			want: &ShareConfig{TypeMeta: shareType, Isolation: IsolationCgroup},
		},
		"left out is not defaulted": {
			raw:  `{` + head + `}`,
			want: &ShareConfig{TypeMeta: shareType},
		},
		"unknown field": {
			raw:  `{` + head + `,"isolaton":"Any"}`,
			errs: []string{`unknown field "isolaton"`},
		},
		"wrongly-cased field": {
			raw:  `{` + head + `,"Isolation":"Any"}`,
			errs: []string{`unknown field "Isolation"`},
		},
		"duplicate field": {
			raw:  `{` + head + `,"isolation":"Any","isolation":"MPS"}`,
			errs: []string{`duplicate field "isolation"`},
		},
		"every wrong field is named": {
			raw:  `{` + head + `,"a":1,"b":2}`,
			errs: []string{`unknown field "a"`, `unknown field "b"`},
		},
		"wrong type of value": {
			raw:  `{` + head + `,"isolation":4}`,
			errs: []string{"ShareConfig.isolation", "number"},
		},
		"another kind": {
			raw:  `{"apiVersion":"memslice.dev/v1alpha1","kind":"GpuConfig","sharing":{}}`,
			errs: []string{`kind "GpuConfig"`, `kind "ShareConfig"`},
		},
		"another version": {
			raw:  `{"apiVersion":"memslice.dev/v9","kind":"ShareConfig"}`,
			errs: []string{`apiVersion "memslice.dev/v9"`, `apiVersion "memslice.dev/v1alpha1"`},
		},
		"another group": {
			raw:  `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"ShareConfig"}`,
			errs: []string{`apiVersion "resource.nvidia.com/v1beta1"`},
		},
		"no kind": {
			raw:  `{"apiVersion":"memslice.dev/v1alpha1"}`,
			errs: []string{`kind ""`, `supported is apiVersion "memslice.dev/v1alpha1" with kind "ShareConfig"`},
		},
		"wrongly-cased kind": {
			raw:  `{"apiVersion":"memslice.dev/v1alpha1","Kind":"ShareConfig"}`,
			errs: []string{`kind ""`, `unknown field "Kind"`},
		},
		"null":                  {raw: `null`, errs: []string{`kind ""`}},
		"a list":                {raw: `[]`, errs: []string{"not a ShareConfig: "}},
		"nothing":               {raw: ``, errs: []string{"not a ShareConfig: "}},
		"something after it":    {raw: `{` + head + `} {}`, errs: []string{"not a ShareConfig: "}},
		"YAML instead of JSON":  {raw: "kind: ShareConfig", errs: []string{"not a ShareConfig: "}},
		"cut in the middle":     {raw: `{` + head + `,"isola`, errs: []string{"not a ShareConfig: "}},
		"value of another case": {raw: `{` + head + `,"isolation":"cgroup"}`, want: &ShareConfig{TypeMeta: shareType, Isolation: "cgroup"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeShareConfig([]byte(tc.raw))
			if (err != nil) != (tc.errs != nil) {
				t.Fatalf("error %v, want one with %q", err, tc.errs)
			}
			for _, part := range tc.errs {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefault(t *testing.T) {
	for name, tc := range map[string]struct{ in, want Isolation }{
		"left out": {"", IsolationAny},
		"set":      {IsolationMPS, IsolationMPS},
	} {
		t.Run(name, func(t *testing.T) {
			c := ShareConfig{Isolation: tc.in}
			c.Default()
			if c.Isolation != tc.want {
				t.Errorf("got %q, want %q", c.Isolation, tc.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		isolation Isolation
		want      string
	}{
		"left out":      {"", ""},
		"any":           {IsolationAny, ""},
		"none":          {IsolationNone, ""},
		"cgroup":        {IsolationCgroup, ""},
		"mps":           {IsolationMPS, ""},
		"unknown":       {"Magic", `parameters.isolation: Unsupported value: "Magic": supported values: "Any", "Cgroup", "MPS", "None"`},
		"wrongly-cased": {"cgroup", `parameters.isolation: Unsupported value: "cgroup": supported values: "Any", "Cgroup", "MPS", "None"`},
	} {
		t.Run(name, func(t *testing.T) {
			errs := (&ShareConfig{Isolation: tc.isolation}).Validate(field.NewPath("parameters"))
			var got string
			if err := errs.ToAggregate(); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// FuzzDecodeShareConfig: whatever is accepted has exactly the documented fields
// and survives a round trip.
func FuzzDecodeShareConfig(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"memslice.dev/v1alpha1","kind":"ShareConfig","isolation":"MPS"}`))
	f.Add([]byte(`{"apiVersion":"memslice.dev/v1alpha1","kind":"ShareConfig","Isolation":"MPS"}`))
	f.Add([]byte(`{"apiVersion":"memslice.dev/v1alpha1","kind":"ShareConfig","kind":"ShareConfig"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		config, err := DecodeShareConfig(raw)
		if err != nil {
			return
		}
		var fields map[string]any
		if err := json.Unmarshal(raw, &fields); err != nil {
			t.Fatalf("accepted what is not an object: %v", err)
		}
		for name := range fields {
			if name != "apiVersion" && name != "kind" && name != "isolation" {
				t.Errorf("accepted the field %q", name)
			}
		}
		encoded, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeShareConfig(encoded)
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if diff := cmp.Diff(config, again); diff != "" {
			t.Errorf("after a round trip (-want +got):\n%s", diff)
		}
	})
}
