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
