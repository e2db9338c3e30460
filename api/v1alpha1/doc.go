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

// Package v1alpha1 is the configuration that users and administrators write for
// memslice, in the group memslice.dev, version v1alpha1: its types, defaults,
// strict decoding and validation.
//
// It knows nothing of claims, GPUs or files: where a document comes from and
// what becomes of it is the business of whoever decodes it.
package v1alpha1
