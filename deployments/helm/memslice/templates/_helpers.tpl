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
{{- /* Names leave room for the longest suffix, -kubelet-plugin, in a DNS label. */ -}}
{{- define "memslice.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 48 | trimSuffix "-" -}}
{{- end -}}

{{- define "memslice.fullname" -}}
{{- $name := include "memslice.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "memslice.pluginName" -}}
{{- printf "%s-kubelet-plugin" (include "memslice.fullname" .) -}}
{{- end -}}

{{- define "memslice.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- define "memslice.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "memslice.pluginName" .) -}}
{{- end -}}

{{- define "memslice.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- /* The driver's name is part of the API; it is no setting. */ -}}
{{- define "memslice.driverName" -}}
gpu.memslice.dev
{{- end -}}

{{- define "memslice.selectorLabels" -}}
app.kubernetes.io/name: {{ include "memslice.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: kubelet-plugin
{{- end -}}

{{- define "memslice.labels" -}}
app.kubernetes.io/name: {{ include "memslice.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: memslice
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "memslice.nodeConfigFile" -}}
nodeconfig.yaml
{{- end -}}

{{- /* memslice.evicts is not empty where a node's configuration evicts pods. */ -}}
{{- define "memslice.evicts" -}}
{{- range $config := prepend .Values.nodeConfigOverrides .Values.nodeConfig -}}
{{- range $gpu := prepend ($config.gpus | default list) ($config.defaults | default dict) -}}
{{- if eq "Evict" (dig "isolation" "onOverUse" "" $gpu) -}}true{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
