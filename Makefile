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

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

OUTPUT := _output
BIN := $(OUTPUT)/bin
IMAGES := $(OUTPUT)/images
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# nvml.h deprecates functions that go-nvml wraps all the same.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

include e2e/localcluster/build.mk
include e2e/fakegpu/build.mk

go_sources = $(shell find $(1) -name '*.go' -not -name '*_test.go') go.mod go.sum

##@ To use

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-zA-Z0-9_-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: e2e-tools ## Start a cluster on this machine, install memslice and run the quickstart
	@$(BIN)/demo

.PHONY: cluster-up
cluster-up: e2e-tools ## Start a cluster with memslice and no pods (nothing happens if it is up)
	@$(BIN)/demo --cluster-only

.PHONY: cluster-down
cluster-down: ## Stop the cluster and remove everything it made (nothing happens if it is down)
	@if [ -x $(BIN)/localcluster ]; then $(BIN)/localcluster down; else echo "the cluster was never built"; fi

##@ To build

.PHONY: build
build: $(BIN)/memslice-kubelet-plugin $(BIN)/memslice-hook $(BIN)/nvidia-cdi-hook ## Build the kubelet plugin and the hooks that its image carries

$(BIN)/memslice-kubelet-plugin: $(call go_sources,api cmd pkg)
	@echo "build memslice-kubelet-plugin: the first build takes a few minutes"
	@CGO_ENABLED=1 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./cmd/memslice-kubelet-plugin

$(BIN)/memslice-hook: $(call go_sources,cmd/memslice-hook pkg/hook)
	@echo "build memslice-hook"
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o $@ ./cmd/memslice-hook
	@touch $@

# The container runtime runs this one on the host, whatever libc that has, so it
# is static. The linker's warning about dlopen concerns a command not used here.
$(BIN)/nvidia-cdi-hook: go.mod go.sum
	@echo "build nvidia-cdi-hook"
	@CGO_ENABLED=1 go build -trimpath -buildvcs=false -tags netgo,osusergo \
		-ldflags "-s -w -extldflags '-static -Wl,--unresolved-symbols=ignore-in-object-files'" \
		-o $@ github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook 2>&1 | \
		{ grep -v -e "Using 'dlopen'" -e 'in function .*dlopen' -e '^# github.com/NVIDIA' || true; }

.PHONY: image
image: $(IMAGES)/memslice.tar $(IMAGES)/demo.tar ## Assemble the images docker.io/memslice/{memslice,demo}:dev, without Docker

$(IMAGES)/memslice.tar: $(BIN)/memslice-kubelet-plugin $(BIN)/memslice-hook $(BIN)/nvidia-cdi-hook $(BIN)/mkimage
	@mkdir -p $(@D)
	@$(BIN)/mkimage --tag docker.io/memslice/memslice:dev --output $@ \
		--elf $(BIN)/memslice-kubelet-plugin:/usr/bin/memslice-kubelet-plugin \
		--lib libdl.so.2 --lib libpthread.so.0 --lib librt.so.1 --lib libm.so.6 \
		--add $(BIN)/nvidia-cdi-hook:/usr/bin/nvidia-cdi-hook:0755 \
		--add $(BIN)/memslice-hook:/usr/bin/memslice-hook:0755 \
		--env NVIDIA_VISIBLE_DEVICES=void \
		--entrypoint /usr/bin/memslice-kubelet-plugin

$(IMAGES)/demo.tar: $(BIN)/mkimage $(BIN)/cudaload
	@mkdir -p $(@D)
	@command -v busybox >/dev/null || { echo "install busybox-static for the demo image"; \
		{ apt-get install -y busybox-static || { apt-get update && apt-get install -y busybox-static; }; } >/dev/null 2>&1 || \
		{ echo "it could not be installed: apt-get install busybox-static" >&2; exit 1; }; }
	@$(BIN)/mkimage --tag docker.io/memslice/demo:dev --output $@ --busybox "$$(command -v busybox)" \
		--add $(BIN)/cudaload:/usr/bin/cudaload:0755 --dir /tmp:1777 --cmd sh

# Without root no container runs, so images would be for nothing.
.PHONY: e2e-tools
e2e-tools: localcluster fakegpu build $(BIN)/demo $(BIN)/kubeletemu $(if $(filter 0,$(shell id -u)),image)

$(BIN)/demo $(BIN)/kubeletemu: $(call go_sources,e2e/containerview e2e/demo e2e/harness e2e/kubeletemu)
	@echo "build $(@F)"
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $@ ./e2e/$(@F)
	@touch $@

##@ To check

.PHONY: test
test: unit e2e ## Run everything: unit tests, then the end-to-end suite on the local cluster

.PHONY: unit
unit: $(BIN)/helm ## Run the unit tests with the race detector
	go test -race ./...
	cd e2e/localcluster && go test -race ./...
	cd e2e/localcluster/kubernetes && go test ./internal/...

.PHONY: e2e
e2e: e2e-tools ## Run the end-to-end suite on the local cluster
	cd e2e && go test -tags e2e -count=1 -timeout 40m

.PHONY: bench-scheduler
bench-scheduler: localcluster $(BIN)/bench-scheduler ## Measure what layouts of devices cost the scheduler (ARGS="--help" for its flags)
	@$(BIN)/bench-scheduler $(ARGS)

$(BIN)/bench-scheduler: $(call go_sources,api pkg e2e/bench e2e/harness e2e/fakegpu/catalog)
	@echo "build $(@F)"
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $@ ./e2e/bench
	@touch $@

.PHONY: lint
lint: $(BIN)/golangci-lint ## Check style, errors and the direction of imports
	$(BIN)/golangci-lint run ./...
	cd e2e/localcluster && ../../$(BIN)/golangci-lint run --config ../../.golangci.yml ./...

$(BIN)/golangci-lint: .ci/tools/go.mod .ci/tools/go.sum
	@echo "build golangci-lint: the first build takes minutes"
	@cd .ci/tools && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

##@ To start over

.PHONY: clean
clean: cluster-down ## Stop the cluster and delete everything that was built
	rm -rf $(OUTPUT)
