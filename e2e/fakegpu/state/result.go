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

package state

import (
	"fmt"
	"strings"
)

// Result is an nvmlReturn_t value.
type Result uint32

// The results that the simulated library itself gives.
const (
	Success                 Result = 0
	Uninitialized           Result = 1
	InvalidArgument         Result = 2
	NotSupported            Result = 3
	NoPermission            Result = 4
	NotFound                Result = 6
	InsufficientSize        Result = 7
	DriverNotLoaded         Result = 9
	Timeout                 Result = 10
	GPUIsLost               Result = 15
	ResetRequired           Result = 16
	OperatingSystem         Result = 17
	VersionMismatch         Result = 18
	InUse                   Result = 19
	InsufficientMemory      Result = 20
	InsufficientResources   Result = 23
	ArgumentVersionMismatch Result = 25
	Unknown                 Result = 999
)

// resultNames are NVML's names without the prefix NVML_ERROR_, and what
// nvmlErrorString says about each.
var resultNames = []struct {
	result Result
	name   string
	text   string
}{
	{Success, "SUCCESS", "Success"},
	{Uninitialized, "UNINITIALIZED", "Uninitialized"},
	{InvalidArgument, "INVALID_ARGUMENT", "Invalid Argument"},
	{NotSupported, "NOT_SUPPORTED", "Not Supported"},
	{NoPermission, "NO_PERMISSION", "Insufficient Permissions"},
	{NotFound, "NOT_FOUND", "Not Found"},
	{InsufficientSize, "INSUFFICIENT_SIZE", "Insufficient Size"},
	{8, "INSUFFICIENT_POWER", "Insufficient External Power"},
	{DriverNotLoaded, "DRIVER_NOT_LOADED", "Driver Not Loaded"},
	{Timeout, "TIMEOUT", "Timeout"},
	{11, "IRQ_ISSUE", "Interrupt Request Issue"},
	{12, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
	{13, "FUNCTION_NOT_FOUND", "Function Not Found"},
	{14, "CORRUPTED_INFOROM", "Corrupted infoROM"},
	{GPUIsLost, "GPU_IS_LOST", "GPU is lost"},
	{ResetRequired, "RESET_REQUIRED", "GPU requires reset"},
	{OperatingSystem, "OPERATING_SYSTEM", "GPU access blocked by the operating system"},
	{VersionMismatch, "LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"},
	{InUse, "IN_USE", "In use by another client"},
	{InsufficientMemory, "MEMORY", "Insufficient Memory"},
	{21, "NO_DATA", "No data"},
	{InsufficientResources, "INSUFFICIENT_RESOURCES", "Insufficient Resources"},
	{ArgumentVersionMismatch, "ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
	{27, "NOT_READY", "Not Ready"},
	{28, "GPU_NOT_FOUND", "No GPUs were found"},
	{29, "INVALID_STATE", "Invalid state"},
	{Unknown, "UNKNOWN", "Unknown Error"},
}

// ParseResult accepts NVML's names, with or without NVML_ERROR_ or ERROR_.
func ParseResult(name string) (Result, error) {
	bare := strings.TrimPrefix(strings.TrimPrefix(name, "NVML_"), "ERROR_")
	names := make([]string, len(resultNames))
	for i, r := range resultNames {
		if r.name == bare {
			return r.result, nil
		}
		names[i] = r.name
	}
	return 0, fmt.Errorf("unknown NVML error %q: use one of %s", name, strings.Join(names[1:], ", "))
}

// String is NVML's name without the prefix.
func (r Result) String() string {
	for _, known := range resultNames {
		if known.result == r {
			return known.name
		}
	}
	return fmt.Sprintf("NVML error %d", uint32(r))
}

// Text is what nvmlErrorString answers.
func (r Result) Text() string {
	for _, known := range resultNames {
		if known.result == r {
			return known.text
		}
	}
	return fmt.Sprintf("Unknown NVML error %d", uint32(r))
}

// MarshalText writes the name.
func (r Result) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (r *Result) UnmarshalText(text []byte) error {
	result, err := ParseResult(string(text))
	if err != nil {
		return err
	}
	*r = result
	return nil
}
