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

// Package cdi writes what a container runtime has to do to a container so that
// it can use what its claim was granted: one transient CDI spec per claim, with
// one CDI device per grant.
//
// Specs is the files, NVIDIA is where the device nodes, libraries and hooks
// come from. Nothing is kept in memory and nothing on disk is read back: a spec
// follows from the claim's grants and from the driver as it is at the moment.
//
// The package knows nothing of the Kubernetes API, of other claims, or of
// whether a grant is legitimate.
package cdi
