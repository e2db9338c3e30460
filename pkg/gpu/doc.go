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

// Package gpu is the model that every other package speaks: the GPUs of a
// node, the devices in which they are offered, and what a claim is granted of
// one.
//
// It holds plain values. It knows neither NVML nor the Kubernetes API, does no
// I/O, and depends on nothing else in this module.
package gpu
