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

//go:build libnvml

#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>

#include "shim.h"

const char *fakegpu_library_path(void)
{
	Dl_info info;

	if (dladdr((void *)fakegpu_library_path, &info) == 0)
		return NULL;
	return info.dli_fname;
}

// This library brings a Go runtime of its own, which takes SIGURG for the
// preemption of its goroutines. When the loading process is a Go program too,
// that would leave its goroutines without preemption. Faults need no such
// care: the runtime passes on those that are not its own.
static struct sigaction host_preemption;

// Priority 101 is the earliest that a library may use: before Go's start.
__attribute__((constructor(101))) static void remember_signals(void)
{
	sigaction(SIGURG, NULL, &host_preemption);
}

void fakegpu_return_signals(void)
{
	sigaction(SIGURG, &host_preemption, NULL);
}
