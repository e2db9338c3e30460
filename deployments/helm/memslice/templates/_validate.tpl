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
{{- if hasKey .Values "sharing" -}}
{{- fail "sharing: has gone; write sharing.memoryMin as nodeConfig.defaults.memory.min, and sharing.memoryStep as nodeConfig.defaults.memory.step" -}}
{{- end -}}
{{- include "memslice.validatePaths" . -}}
{{- include "memslice.validateImage" . -}}
{{- include "memslice.validateIdentity" . -}}
{{- include "memslice.validateUpdateStrategy" . -}}
{{- include "memslice.validateLabels" . -}}
{{- include "memslice.validateExtendedResource" . -}}
{{- include "memslice.validateNodeConfig" (dict "config" .Values.nodeConfig "path" "nodeConfig") -}}
{{- range $n, $override := .Values.nodeConfigOverrides -}}
{{- include "memslice.validateNodeConfig" (dict "config" $override "path" (printf "nodeConfigOverrides[%d]" $n)) -}}
{{- end -}}
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

{{- /*
What a rule leaves out it has from the defaults: a mode that does not go with
what is offered would keep the plugin from starting.
*/ -}}
{{- define "memslice.validateNodeConfig" -}}
{{- $defaults := .config.defaults | default dict -}}
{{- include "memslice.validateGPUConfig" (dict "gpu" $defaults "defaults" $defaults "path" (printf "%s.defaults" .path)) -}}
{{- range $n, $rule := .config.gpus -}}
{{- include "memslice.validateGPUConfig" (dict "gpu" $rule "defaults" $defaults "path" (printf "%s.gpus[%d]" $.path $n)) -}}
{{- end -}}
{{- end -}}

{{- define "memslice.validateGPUConfig" -}}
{{- include "memslice.validateMIGMode" . -}}
{{- include "memslice.validateIsolation" . -}}
{{- end -}}

{{- define "memslice.validateIsolation" -}}
{{- $own := .gpu.isolation | default dict -}}
{{- $isolation := merge dict $own (.defaults.isolation | default dict) -}}
{{- if and (or (hasKey $own "memory") (hasKey $own "required")) (eq "None" ($isolation.memory | default "Any")) $isolation.required -}}
{{- fail (printf "%s.isolation.required true: with memory: None there is no mechanism that could be required; set memory to Any or Cgroup" .path) -}}
{{- end -}}
{{- end -}}

{{- define "memslice.validateMIGMode" -}}
{{- $offer := .gpu.offer | default .defaults.offer | default (list "Slice" "GPU") -}}
{{- $own := dig "mig" "mode" "" .gpu -}}
{{- $mode := $own | default (dig "mig" "mode" "Keep" .defaults) -}}
{{- if and (ne $mode "Keep") (not (has "MIG" $offer)) $own -}}
{{- fail (printf "%s.mig.mode %s: only with MIG in offer, which is %v" .path $mode $offer) -}}
{{- else if and (eq $mode "Enabled") (has "MIG" $offer) (gt (len $offer) 1) -}}
{{- fail (printf "%s.mig.mode Enabled: a GPU that is always in MIG mode has nothing but partitions: set offer, which is %v, to [MIG], or mig.mode to OnDemand" .path $offer) -}}
{{- end -}}
{{- end -}}
