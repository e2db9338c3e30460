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

// Package e2e tests what users get of memslice on a real cluster: see the
// scenarios. The tests need the build tag e2e; they bring the cluster up
// themselves, as the demo does, and leave it up.
//
//	cd e2e && go test -tags e2e -count=1 -timeout 40m
//
// The environment variables MEMSLICE_E2E_STATE, _NODE, … choose another cluster
// or, with MEMSLICE_E2E_NODE=emulated, one without containers: see
// harness.Options. The GPUs are the tests' alone while they run.
package e2e
