{{/* The release, and the chart's name unless the release has it already. "-headless" has room behind it: of the 63
characters that a Service's name may have, it takes nine. */}}
{{- define "dragoman.name" -}}
{{- $name := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- trunc 54 $name | trimSuffix "-" }}
{{- end }}

{{/* The text of a setting's value. toJson, because toString makes 4.194304e+06 of 4194304. */}}
{{- define "dragoman.setting" -}}
{{- if kindIs "slice" . }}{{ join "," . }}{{ else if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end }}

{{/* Empty, or why an autoscaler cannot be: the schema compares no values. */}}
{{- define "dragoman.checkReplicas" -}}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{- fail (printf "autoscaling.minReplicas is %d and autoscaling.maxReplicas %d: raise maxReplicas" (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- end }}

{{/* Empty, or why no pod can be: what the server would refuse, or nobody would read. */}}
{{- define "dragoman.checkPod" -}}
{{- $values := . }}
{{- range $name := list "http_hosts" "http_cors" }}
{{- if and (hasKey $values.settings $name) (not $values.http.enabled) }}
{{- fail (printf "settings.%s says who may ask the HTTP port, and http.enabled is false: say true, or leave it out" $name) }}
{{- end }}
{{- end }}
{{- if and .package.subPath (not .package.existingClaim) }}
{{- fail (printf "package.subPath is %s, and package.existingClaim, whose volume it is in, is empty: name that too" .package.subPath) }}
{{- end }}
{{- end }}

{{- define "dragoman.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dragoman.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "dragoman.selector" . }}
{{- end }}

{{- define "dragoman.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Mean seconds in the queue over a minute; 0 while nobody calls. */}}
{{- define "dragoman.queueQuery" -}}
{{- $of := printf "{phase=\"queue\",namespace=\"%s\",service=\"%s\"}[1m]" .Release.Namespace (printf "%s-headless" (include "dragoman.name" .)) -}}
sum(rate(dragoman_phase_duration_seconds_sum{{ $of }})) / (sum(rate(dragoman_phase_duration_seconds_count{{ $of }})) > 0) or vector(0)
{{- end }}
