{{- /*
Copyright The memslice Authors

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/ -}}
{{- define "memslice.spreadName" -}}
{{- printf "%s-spread" (include "memslice.fullname" .) -}}
{{- end -}}

{{- /* The label is part of the API; it is no setting. */ -}}
{{- define "memslice.placementLabel" -}}
memslice.dev/placement
{{- end -}}

{{- /*
memslice.spreadVariables are for both policies: what the one expands is what the
other lets pass. dyn keeps the API server from complaining about fields that
only one of the two kinds has.
*/ -}}
{{- define "memslice.spreadVariables" -}}
{{- $classes := .Values.spreadPolicy.deviceClasses -}}
- name: template
  expression: request.resource.resource == "resourceclaimtemplates"
- name: requests
  expression: >-
    (variables.template ? dyn(object).spec.spec : dyn(object).spec).?devices.?requests.orValue([])
- name: request
  expression: >-
    variables.requests[?0].orValue({})
- name: alternatives
  expression: >-
    variables.request.?firstAvailable.orValue([])
# As the policy writes it. Claims that are made from an expanded template have it
# already.
- name: expanded
  expression: >-
    size(variables.alternatives) > 1 && variables.alternatives.all(i, a,
    a.deviceClassName in {{ toJson $classes }}
    && (i < size(variables.alternatives) - 1
    ? a.name == "rank" + string(i + 1) && a.?capacity.?requests[?a.name].hasValue()
    : a.name == "packed"))
# Why the request cannot be spread and what to write instead; empty if it can.
- name: obstacle
  expression: >-
    variables.expanded ? "" :
    size(variables.alternatives) > 0
    ? "has firstAvailable, which is what the label stands for: write exactly, or leave the label out and let"
    + " your alternatives ask for ranks (capacity.requests.rank1: '1', then rank2, the last one without)" :
    !has(variables.request.exactly) ? "asks for nothing: write exactly" :
    !(variables.request.exactly.deviceClassName in {{ toJson $classes }})
    ? "is for class " + variables.request.exactly.deviceClassName
    + ": only {{ join " and " $classes }} can be spread; write that, or leave the label out" :
    variables.request.exactly.?adminAccess.orValue(false)
    ? "has adminAccess, which takes no share: leave the label out" :
    variables.request.exactly.?allocationMode.orValue("ExactCount") != "ExactCount"
    ? "has allocationMode " + variables.request.exactly.allocationMode
    + ": write ExactCount and a count, or leave the label out" :
    variables.request.exactly.?capacity.?requests.orValue({}).exists(name, name.matches("^rank[0-9]+$"))
    ? "asks for the capacity of a rank, as the label does: leave one of the two out" :
    ""
- name: refusal
  expression: >-
    size(variables.requests) != 1
    ? "spread is for one request and there are " + string(size(variables.requests))
    + ": write a claim for each, as a pod can use several, or leave the label out" :
    variables.obstacle != "" ? "spread is not possible, request " + variables.request.name + " " + variables.obstacle : ""
{{- end -}}
