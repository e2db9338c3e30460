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
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"
)

// DecodeShareConfig reads a ShareConfig from JSON. A field that is unknown, set
// twice or not spelled exactly as documented is an error that names its path,
// as is another kind or version. Fields left out stay empty: see Default.
func DecodeShareConfig(raw []byte) (*ShareConfig, error) {
	var config ShareConfig
	if err := decode(raw, &config, &config.TypeMeta, ShareConfigKind); err != nil {
		return nil, err
	}
	return &config, nil
}

// decode reads a document of a kind, whose type is part of it, from JSON.
func decode(raw []byte, into any, found *metav1.TypeMeta, kind string) error {
	unknown, err := json.UnmarshalStrict(raw, into)
	if err != nil {
		return fmt.Errorf("not a %s: %w", kind, err)
	}
	if found.APIVersion != APIVersion || found.Kind != kind {
		err := fmt.Errorf("found apiVersion %q and kind %q, supported is apiVersion %q with kind %q",
			found.APIVersion, found.Kind, APIVersion, kind)
		// Of another kind of document all fields are unknown, but where one is
		// missing it may be among those that are not spelled correctly.
		if found.APIVersion == "" || found.Kind == "" {
			return utilerrors.NewAggregate(append([]error{err}, unknown...))
		}
		return err
	}
	return utilerrors.NewAggregate(unknown)
}

// Validate reports every value that cannot be served, by its path. Values left
// out are valid.
func (c *ShareConfig) Validate(path *field.Path) field.ErrorList {
	switch c.Isolation {
	case "", IsolationAny, IsolationNone, IsolationCgroup, IsolationMPS:
		return nil
	}
	return field.ErrorList{field.NotSupported(path.Child("isolation"), c.Isolation,
		[]Isolation{IsolationAny, IsolationCgroup, IsolationMPS, IsolationNone})}
}
