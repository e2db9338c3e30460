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

// Package mig makes MIG instances for claims and removes them again, and sees to
// the MIG mode of GPUs that change it with their claims.
//
// It leaves a durable mark for each instance before it makes it, and removes the
// mark after the instance, so that after a crash it can tell its own instances
// from those of an administrator, which it never touches. What claims hold is
// not its business: it is told.
package mig
