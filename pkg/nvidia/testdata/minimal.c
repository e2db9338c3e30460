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

// The least that passes for NVML: one GPU that has nothing but a UUID. It
// stands for a driver that lacks every function that came after the first.

#include <stdint.h>
#include <string.h>

typedef int nvmlReturn_t;
typedef struct nvmlDevice *nvmlDevice_t;

static int initialised;

nvmlReturn_t nvmlInit_v2(void)
{
	initialised = 1;
	return 0;
}

nvmlReturn_t nvmlShutdown(void)
{
	initialised = 0;
	return 0;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	return result == 13 ? "no such function" : "some error";
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	*count = 1;
	return initialised ? 0 : 1;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	*device = (nvmlDevice_t)(uintptr_t)(index + 1);
	return initialised ? 0 : 1;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	(void)device;
	strncpy(uuid, "GPU-00000001-1111-4222-8333-444444444444", length);
	return initialised ? 0 : 1;
}
