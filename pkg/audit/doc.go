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

// Package audit finds out, again and again, how much GPU memory the pods of each
// claim have, and whether that is what was granted.
//
// NVML says which processes use a GPU, their cgroups which containers they are
// in, and the prepared claims whose they are. What is done with the figures is
// up to others.
package audit
