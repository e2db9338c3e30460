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

// Package isolation holds containers to the GPU memory that their claims were
// granted, and reads back that it does.
//
// The mechanism is the kernel driver's limit on a cgroup. A container's cgroup
// exists only once the container runtime has made it, so the claim's CDI spec
// carries an OCI hook for each device, by which the runtime asks for the limit
// before the container's program starts. A container is limited to the sum of the
// shares that it was given, and its pod to the sum of those that any of its
// containers was given, each counted once.
//
// The package trusts the hook with nothing but a process id: which container that
// is in, and whether the container's pod may use the claim, is found out here. It
// knows neither NVML nor the API server.
package isolation
