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

// Package state owns the simulated driver's one document: which GPUs the node
// has, what is wrong with them, and whether the driver is loaded. It is kept
// as JSON in a directory that several processes share: readers see whole
// documents, writers take turns, and both survive restarts. The package knows
// the catalog, but neither the NVML C API nor the driver root's other files.
package state
