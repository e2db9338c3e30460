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

# Rules that build the programs of the local cluster, for inclusion in a makefile
# that sets BIN, the folder that they go to (default _output/bin). The target
# localcluster stands for all of them.
#
# A program is rebuilt when its module or sources change, and only then.

BIN ?= _output/bin
LOCALCLUSTER_DIR := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
LOCALCLUSTER_BUILD := $(LOCALCLUSTER_DIR)/build.sh

# The version of Kubernetes in the module; another one can be asked for.
KUBERNETES_MODULE_VERSION := $(shell sed -n 's/^.*k8s.io\/kubernetes v\([0-9.]*\)$$/\1/p' $(LOCALCLUSTER_DIR)/kubernetes/go.mod)
KUBERNETES_VERSION ?= $(KUBERNETES_MODULE_VERSION)
CONTAINERD_VERSION := $(shell sed -n 's/^.*github.com\/containerd\/containerd\/v2 v\([^ ]*\).*$$/\1/p' $(LOCALCLUSTER_DIR)/containerd/go.mod)
HELM_VERSION := $(shell sed -n 's/^.*helm.sh\/helm\/v4 v\([^ ]*\).*$$/\1/p' $(LOCALCLUSTER_DIR)/helm/go.mod)

LOCALCLUSTER_CONTAINERD := $(addprefix $(BIN)/,containerd containerd-shim-runc-v2 ctr)
LOCALCLUSTER_CNI := $(addprefix $(BIN)/cni/,ptp loopback host-local)
LOCALCLUSTER_OWN := $(addprefix $(BIN)/,localcluster mkimage pause)
LOCALCLUSTER_PROGRAMS := $(BIN)/kube $(BIN)/kubectl $(LOCALCLUSTER_CONTAINERD) $(LOCALCLUSTER_CNI) $(BIN)/helm $(LOCALCLUSTER_OWN)

.PHONY: localcluster
localcluster: $(LOCALCLUSTER_PROGRAMS)

# --- Kubernetes

ifeq ($(KUBERNETES_VERSION),$(KUBERNETES_MODULE_VERSION))
KUBERNETES_MODULE := $(LOCALCLUSTER_DIR)/kubernetes
else
KUBERNETES_MODULE := $(BIN)/../kubernetes-$(KUBERNETES_VERSION)
$(KUBERNETES_MODULE)/go.sum: $(LOCALCLUSTER_DIR)/kubernetes-version.sh $(LOCALCLUSTER_DIR)/kubernetes/go.mod
	$(LOCALCLUSTER_DIR)/kubernetes-version.sh $(KUBERNETES_VERSION) $(KUBERNETES_MODULE)
endif

# Changes when another version is asked for, and only then.
KUBERNETES_STAMP := $(BIN)/.kubernetes-version
ifneq ($(KUBERNETES_VERSION),$(shell cat $(KUBERNETES_STAMP) 2>/dev/null))
.PHONY: $(KUBERNETES_STAMP)
endif
$(KUBERNETES_STAMP):
	@mkdir -p $(@D) && echo $(KUBERNETES_VERSION) > $@

kubernetes-minor = $(word 2,$(subst ., ,$(KUBERNETES_VERSION)))
kubernetes-var = -X k8s.io/component-base/version.$(1)

$(BIN)/kube: $(LOCALCLUSTER_BUILD) $(KUBERNETES_STAMP) $(KUBERNETES_MODULE)/go.sum $(wildcard $(addprefix $(LOCALCLUSTER_DIR)/kubernetes/,go.mod *.go internal/*/*.go))
	@$(LOCALCLUSTER_BUILD) $@ $(KUBERNETES_MODULE) . "$(call kubernetes-var,gitVersion=v$(KUBERNETES_VERSION)) \
		$(call kubernetes-var,gitMajor=1) $(call kubernetes-var,gitMinor=$(kubernetes-minor))"

$(BIN)/kubectl: $(BIN)/kube
	@ln -sf kube $@

# --- containerd, the pod network, Helm: programs of other modules, as they are

LOCALCLUSTER_CONTAINERD_DEPS := $(LOCALCLUSTER_BUILD) $(LOCALCLUSTER_DIR)/containerd/go.mod $(LOCALCLUSTER_DIR)/containerd/go.sum

$(LOCALCLUSTER_CONTAINERD): $(LOCALCLUSTER_CONTAINERD_DEPS)
	@$(LOCALCLUSTER_BUILD) $@ $(LOCALCLUSTER_DIR)/containerd github.com/containerd/containerd/v2/cmd/$(@F) \
		"-X github.com/containerd/containerd/v2/version.Version=$(CONTAINERD_VERSION)"

$(BIN)/cni/ptp $(BIN)/cni/loopback: $(LOCALCLUSTER_CONTAINERD_DEPS)
	@$(LOCALCLUSTER_BUILD) $@ $(LOCALCLUSTER_DIR)/containerd github.com/containernetworking/plugins/plugins/main/$(@F)

$(BIN)/cni/host-local: $(LOCALCLUSTER_CONTAINERD_DEPS)
	@$(LOCALCLUSTER_BUILD) $@ $(LOCALCLUSTER_DIR)/containerd github.com/containernetworking/plugins/plugins/ipam/$(@F)

$(BIN)/helm: $(LOCALCLUSTER_BUILD) $(LOCALCLUSTER_DIR)/helm/go.mod $(LOCALCLUSTER_DIR)/helm/go.sum
	@$(LOCALCLUSTER_BUILD) $@ $(LOCALCLUSTER_DIR)/helm helm.sh/helm/v4/cmd/helm \
		"-X helm.sh/helm/v4/internal/version.version=v$(HELM_VERSION)"

# --- our own

LOCALCLUSTER_SOURCES := $(shell find $(LOCALCLUSTER_DIR)/cmd $(LOCALCLUSTER_DIR)/internal -name '*.go' ! -name '*_test.go')

$(LOCALCLUSTER_OWN): $(LOCALCLUSTER_BUILD) $(LOCALCLUSTER_DIR)/go.mod $(LOCALCLUSTER_DIR)/go.sum $(LOCALCLUSTER_SOURCES)
	@$(LOCALCLUSTER_BUILD) $@ $(LOCALCLUSTER_DIR) ./cmd/$(@F)
