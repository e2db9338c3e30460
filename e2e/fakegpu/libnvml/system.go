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

package main

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"

	"github.com/memslice/memslice/e2e/fakegpu/state"
)

//export nvmlInit_v2
func nvmlInit_v2() C.nvmlReturn_t { return C.nvmlReturn_t(process.open()) }

//export nvmlInitWithFlags
func nvmlInitWithFlags(_ C.uint) C.nvmlReturn_t { return C.nvmlReturn_t(process.open()) }

//export nvmlShutdown
func nvmlShutdown() C.nvmlReturn_t { return C.nvmlReturn_t(process.close()) }

// errorTexts keeps the strings that callers of nvmlErrorString may hold on to.
var errorTexts sync.Map

//export nvmlErrorString
func nvmlErrorString(result C.nvmlReturn_t) *C.const_char {
	if text, ok := errorTexts.Load(result); ok {
		return text.(*C.const_char)
	}
	text, _ := errorTexts.LoadOrStore(result, (*C.const_char)(C.CString(state.Result(result).Text())))
	return text.(*C.const_char)
}

//export nvmlSystemGetDriverVersion
func nvmlSystemGetDriverVersion(version *C.char, length C.uint) C.nvmlReturn_t {
	node, result := process.current()
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	return C.nvmlReturn_t(putText(version, length, node.Driver.Version))
}

//export nvmlSystemGetNVMLVersion
func nvmlSystemGetNVMLVersion(version *C.char, length C.uint) C.nvmlReturn_t {
	node, result := process.current()
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	return C.nvmlReturn_t(putText(version, length, nvmlVersion(node.Driver)))
}

// nvmlVersion is the CUDA release's major number before the driver's version,
// for example "13.580.95.05".
func nvmlVersion(driver state.Driver) string {
	return fmt.Sprintf("%d.%s", driver.CUDA/1000, driver.Version)
}

//export nvmlSystemGetCudaDriverVersion
func nvmlSystemGetCudaDriverVersion(version *C.int) C.nvmlReturn_t { return cudaVersion(version) }

//export nvmlSystemGetCudaDriverVersion_v2
func nvmlSystemGetCudaDriverVersion_v2(version *C.int) C.nvmlReturn_t { return cudaVersion(version) }

func cudaVersion(version *C.int) C.nvmlReturn_t {
	node, result := process.current()
	if result != state.Success {
		return C.nvmlReturn_t(result)
	}
	if version == nil {
		return C.NVML_ERROR_INVALID_ARGUMENT
	}
	*version = C.int(node.Driver.CUDA)
	return C.NVML_SUCCESS
}
