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

// Package driverroot owns the files of a simulated driver installation: the
// libraries that NVIDIA's CDI library looks for, firmware, device nodes, and
// the GPUs' part of sysfs and procfs. It makes them agree with a state document,
// which package state owns; it knows nothing of NVML.
//
// The device nodes of MIG capabilities exist for all instances that a GPU could
// have, whether it has them or not.
package driverroot
