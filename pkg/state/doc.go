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

// Package state remembers, across restarts and power cuts, what is prepared on
// this node: one file per claim in one directory.
//
// A file is replaced as a whole and is on the disk when the call returns. The
// files are indexed in memory, so that the cost of a change does not depend on
// how many claims there are. Several processes may have the directory open, as
// two instances of the plugin do during an update: a lock makes their changes
// exclusive, and a stamp in the lock file tells each when the other has made
// one and its index is out of date.
//
// A file that cannot be read as a record harms nobody else: it is moved to the
// subdirectory damaged and reported.
//
// The package knows nothing of what a record stands for on the host, and its
// file format is its own: it does not follow changes of the types of others.
package state
