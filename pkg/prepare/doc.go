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

// Package prepare carries a plan out on the host, and takes it back: the check
// against double use, the durable intent, the MIG instances, the CDI spec, the
// durable record, in this order and undone in reverse.
//
// It may be stopped at any point. The next Prepare or Unprepare of the claim, or
// the next Reconcile, ends in the right state. Doing a thing twice is the same
// as doing it once.
//
// It has no Kubernetes client and no NVML: what it needs to know of either is
// passed in.
package prepare
