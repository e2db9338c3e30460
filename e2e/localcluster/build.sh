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

# Builds one program of the local cluster and says how far it is.
#
#   build.sh OUTPUT MODULE_DIR PACKAGE [LDFLAGS]
#
# Compiling Kubernetes with a cold cache takes minutes, and `go build` says
# nothing meanwhile. Whether a build is needed at all is make's business: see
# build.mk.
set -euo pipefail

output=$1 module=$2 package=$3 ldflags=${4:-}
every=${BUILD_PROGRESS_SECONDS:-15}
name=$(basename "$output")
mkdir -p "$(dirname "$output")"
output=$(cd "$(dirname "$output")" && pwd)/$name
export CGO_ENABLED=0
cd "$module"

log=$(mktemp)
build=
cleanup() {
	[ -z "$build" ] || kill "$build" 2>/dev/null || true
	rm -f "$log" "$output.tmp"
}
trap cleanup EXIT

report() { echo "build $name: $*"; }

fail() {
	report "$1 failed in $module:" >&2
	tail -n 30 "$log" >&2
	exit 1
}

report "looking for what has to be compiled (downloads the sources if they are not here)"
# Only what is not in Go's cache: go lists that as stale.
go list -trimpath -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' "$package" >"$log" 2>&1 || fail "go list"
total=$(grep -c '^[^ ]*$' "$log" || true)
if [ "$total" -gt 100 ]; then
	report "compiling $total packages: this takes minutes, but only the first time"
fi

# -trimpath and -buildvcs=false: the same sources give the same binary in any
# folder and at any commit.
go build -v -trimpath -buildvcs=false -ldflags "-s -w $ldflags" -o "$output.tmp" "$package" >"$log" 2>&1 &
build=$!

start=$SECONDS next=$every
while kill -0 "$build" 2>/dev/null; do
	sleep 0.2
	elapsed=$((SECONDS - start))
	if [ "$elapsed" -ge "$next" ]; then
		next=$((elapsed + every))
		report "$((elapsed / 60))m$((elapsed % 60))s, $(grep -vc '^go: ' "$log" || true) of $total packages compiled"
	fi
done
status=0
wait "$build" || status=$?
build=
[ "$status" -eq 0 ] || fail "go build"
mv "$output.tmp" "$output"
report "done in $((SECONDS - start))s"
