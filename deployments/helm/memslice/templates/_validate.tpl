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
{{- /*
memslice.validate refuses what values.schema.json cannot describe: values that
are well-formed one by one but cannot work together or on a node.
*/ -}}
{{- define "memslice.validate" -}}
{{- include "memslice.validatePaths" . -}}
{{- include "memslice.validateImage" . -}}
{{- include "memslice.validateIdentity" . -}}
{{- include "memslice.validateUpdateStrategy" . -}}
{{- include "memslice.validateLabels" . -}}
{{- include "memslice.validateExtendedResource" . -}}
{{- if ne (empty .Values.k8sServiceHost) (empty .Values.k8sServicePort) -}}
{{- fail (printf "k8sServiceHost %q and k8sServicePort %q: set both, or none to use the kubernetes service" .Values.k8sServiceHost (toString .Values.k8sServicePort)) -}}
{{- end -}}
{{- end -}}

{{- define "memslice.validatePaths" -}}
{{- range $key := list "kubeletRootDir" "driverRoot" "cdiRoot" -}}
{{- $path := get $.Values $key -}}
{{- if or (not (isAbs $path)) (ne $path (clean $path)) -}}
{{- fail (printf "%s %q: must be an absolute path on the node, without a trailing slash, '.' or '..'" $key $path) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "kubeletRootDir" "cdiRoot" -}}
{{- if eq "/" (get $.Values $key) -}}
{{- fail (printf "%s %q: must not be the node's root directory" $key (get $.Values $key)) -}}
{{- end -}}
{{- end -}}
{{- /* The longest socket below it is health-<pod uid>.sock; Linux takes 107 bytes. */ -}}
{{- $max := int (sub 107 (len "/plugins/gpu.memslice.dev/health-01234567-89ab-cdef-0123-456789abcdef.sock")) -}}
{{- if gt (len .Values.kubeletRootDir) $max -}}
{{- fail (printf "kubeletRootDir %q: has %d characters; the plugin's sockets below it fit into a socket address only up to %d" .Values.kubeletRootDir (len .Values.kubeletRootDir) $max) -}}
{{- end -}}
{{- end -}}

{{- define "memslice.validateImage" -}}
{{- if or (contains "@" .Values.image.repository) (contains ":" (base .Values.image.repository)) -}}
{{- fail (printf "image.repository %q: must carry no tag or digest; image.tag is for the tag" .Values.image.repository) -}}
{{- end -}}
{{- end -}}

{{- define "memslice.validateIdentity" -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name: must name an existing service account when serviceAccount.create is false, or the namespace's default one would get the plugin's rights" -}}
{{- end -}}
{{- end -}}

{{- define "memslice.validateUpdateStrategy" -}}
{{- $strategy := .Values.kubeletPlugin.updateStrategy -}}
{{- if and (eq $strategy.type "RollingUpdate") $strategy.rollingUpdate -}}
{{- $surge := toString ($strategy.rollingUpdate.maxSurge | default 0) | trimSuffix "%" -}}
{{- $unavailable := toString ($strategy.rollingUpdate.maxUnavailable | default 0) | trimSuffix "%" -}}
{{- if eq (eq $surge "0") (eq $unavailable "0") -}}
{{- fail (printf "kubeletPlugin.updateStrategy.rollingUpdate: one of maxSurge (%v) and maxUnavailable (%v) must be 0 and the other more" $strategy.rollingUpdate.maxSurge $strategy.rollingUpdate.maxUnavailable) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Labels of the chart's own would be written twice, or select no pod. */ -}}
{{- define "memslice.validateLabels" -}}
{{- $sources := dict "kubeletPlugin.podLabels" .Values.kubeletPlugin.podLabels "deviceClasses.labels" .Values.deviceClasses.labels -}}
{{- range $key, $labels := $sources -}}
{{- range $label, $_ := $labels -}}
{{- if or (hasPrefix "app.kubernetes.io/" $label) (hasPrefix "helm.sh/" $label) -}}
{{- fail (printf "%s: label %q is set by the chart; choose another" $key $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "memslice.validateExtendedResource" -}}
{{- $name := .Values.deviceClasses.extendedResourceName -}}
{{- if $name -}}
{{- if or (not (regexMatch "^[a-z0-9][a-z0-9.-]*[.][a-z0-9-]*[a-z0-9]/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$" $name)) (contains "kubernetes.io/" $name) (hasPrefix "requests." $name) -}}
{{- fail (printf "deviceClasses.extendedResourceName %q: must be a domain and a name, such as nvidia.com/gpu, and not of kubernetes.io" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
