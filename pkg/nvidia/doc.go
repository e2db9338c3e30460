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

// Package nvidia reads the GPUs of this machine from NVIDIA's management
// library, NVML, into the model of package gpu, and makes and destroys their MIG
// instances. It is the only package that knows NVML; it does not know Kubernetes'
// objects, nor what GPUs are used for.
//
// Two traits of NVML shape it. A function that the installed driver does not
// have ends the process when called, so each is looked up first. And a process
// keeps the first library that it has loaded: what is installed later under the
// same path is only seen by a new process.
package nvidia
