#!/usr/bin/env bash
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

# Makes a copy of the module `kubernetes` for another version of Kubernetes.
#
#   kubernetes-version.sh VERSION OUTPUT_DIR      (VERSION as in 1.36.3)
#
# Kubernetes points its own libraries at folders of its tree, which only the main
# module of a build may do, so its list is repeated with released versions; this
# takes the list from that version itself. To move the local cluster to another
# version for good, copy the result over the module.
set -euo pipefail

version=$1 output=$2
source=$(cd "$(dirname "$0")" && pwd)/kubernetes

rm -rf "$output"
mkdir -p "$output"
cp -r "$source/." "$output"
cd "$output"
rm go.sum
gomod=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^[[:space:]]*"GoMod": "\(.*\)",\{0,1\}$/\1/p') || true
[ -n "$gomod" ] || { echo "kubernetes-version.sh: there is no Kubernetes v$version" >&2; exit 1; }
{
	sed '/^require/,$d' "$source/go.mod"
	echo "require k8s.io/kubernetes v$version"
	echo
	sed -n 's#^[[:space:]]*\(k8s.io/[^ ]*\) => ./staging/.*#replace \1 => \1 v0.'"${version#1.}"'#p' "$gomod"
} >go.mod
go mod tidy
