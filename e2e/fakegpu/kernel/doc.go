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

// Package kernel simulates what NVIDIA's kernel driver does for programs that
// compute: it gives them the memory of GPUs, within the limits of their cgroups.
//
// A connection to its socket is what an open device node is to a real program.
// Who a program is, and in which cgroups, the kernel finds out by itself; when the
// connection closes, the program's memory is free. The state is that of package
// state, so that NVML tells the same story.
package kernel
