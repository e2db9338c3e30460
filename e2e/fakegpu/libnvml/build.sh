#!/bin/sh
# Copyright The memslice Authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

# Builds the simulated libnvidia-ml.so.1 into the file that is named, against
# the nvml.h of the go-nvml module that go.mod names, as drivers from a release
# on have it: r580, or r615.
set -eu

output=$(realpath -m "${1:?usage: build.sh OUTPUT r580|r615}")
generation=${2:?usage: build.sh OUTPUT r580|r615}
cd "$(dirname "$0")"
header=$(go list -m -f '{{.Dir}}' github.com/NVIDIA/go-nvml)/gen/nvml

CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -I$header" go build -tags "libnvml,$generation" -trimpath -buildmode=c-shared \
	-ldflags "-s -w -extldflags '-Wl,-soname,libnvidia-ml.so.1 -Wl,--version-script=$PWD/exports.map'" -o "$output" .
# cgo writes a C header beside a library; nobody needs it here.
rm -f "${output%.so}.h"
