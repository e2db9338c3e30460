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

// Package fakegpu is a simulated NVIDIA driver below NVML, so that programs
// under test are the ones that ship. Its parts:
//
//	catalog      what real GPUs answer, and which MIG instances fit on one
//	state        what the simulated node has now, in a shared file
//	libnvml      libnvidia-ml.so.1, which answers NVML calls from the two
//	driverroot   the files of a driver installation
//	cmd/fakegpu  the command that makes and changes all that
//	fakegputest  a driver root for Go tests
//
// The package itself only tests the parts together, against the real go-nvml
// and NVIDIA's CDI library.
package fakegpu
