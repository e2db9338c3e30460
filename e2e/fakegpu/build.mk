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

# Rules for the simulated driver. The including Makefile defines BIN, the
# directory for built things.

fakegpu_dir := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
fakegpu_go := $(wildcard $(fakegpu_dir)/catalog/*.go $(fakegpu_dir)/state/*.go) go.mod go.sum

# One library per generation of drivers, named after the first release of it.
FAKEGPU_LIBRARIES := $(BIN)/libnvidia-ml-r580.so $(BIN)/libnvidia-ml-r615.so

.PHONY: fakegpu
fakegpu: $(BIN)/fakegpu $(FAKEGPU_LIBRARIES)

$(BIN)/fakegpu: $(fakegpu_go) $(wildcard $(fakegpu_dir)/driverroot/*.go $(fakegpu_dir)/kernel/*.go $(fakegpu_dir)/cmd/fakegpu/*.go)
	CGO_ENABLED=0 go build -trimpath -o $@ ./$(fakegpu_dir)/cmd/fakegpu
	@touch $@

$(BIN)/libnvidia-ml-%.so: $(fakegpu_go) $(wildcard $(fakegpu_dir)/libnvml/*)
	$(fakegpu_dir)/libnvml/build.sh $@ $*
	@touch $@

# A program in containers that uses simulated GPU memory.
$(BIN)/cudaload: $(fakegpu_go) $(wildcard $(fakegpu_dir)/driverroot/*.go $(fakegpu_dir)/kernel/*.go $(fakegpu_dir)/cmd/cudaload/*.go)
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $@ ./$(fakegpu_dir)/cmd/cudaload
	@touch $@
