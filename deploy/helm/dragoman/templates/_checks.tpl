{{/* Empty, or why an autoscaler cannot be: the schema compares no values. */}}
{{- define "dragoman.checkReplicas" -}}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{- fail (printf "autoscaling.minReplicas is %d and autoscaling.maxReplicas %d: raise maxReplicas" (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- end }}

{{/* Empty, or why KEDA would never have more pods: the query's `or vector(0)` says 0 of series that nobody collects. */}}
{{- define "dragoman.checkQuery" -}}
{{- if not (or .autoscaling.keda.query .serviceMonitor.enabled) }}
{{- fail "autoscaling.type is keda, which asks for the ServiceMonitor's series, and serviceMonitor.enabled is false: say true, or give a query of your own as autoscaling.keda.query" }}
{{- end }}
{{- end }}

{{/* Empty, or why no pod can be: what the server would refuse, or nobody would read. */}}
{{- define "dragoman.checkPod" -}}
{{- $values := . }}
{{- include "dragoman.checkSettings" .settings }}
{{- range $name := list "http_hosts" "http_cors" }}
{{- if and (hasKey $values.settings $name) (not $values.http.enabled) }}
{{- fail (printf "settings.%s says who may ask the HTTP port, and http.enabled is false: say true, or leave it out" $name) }}
{{- end }}
{{- end }}
{{- if and .package.subPath (not .package.existingClaim) }}
{{- fail (printf "package.subPath is %s, and package.existingClaim, whose volume it is in, is empty: name that too" .package.subPath) }}
{{- end }}
{{- end }}

{{/* Empty, or which settings contradict each other, in the server's own words and by its own defaults, but for `device`:
of that an image has a default of its own. */}}
{{- define "dragoman.checkSettings" -}}
{{- range $name, $default := dict "device_id" 0 "device_memory_fraction" 0.9 }}
{{- $value := get $ $name | default $default }}
{{- if and (eq ($.device | default "") "cpu") (ne (float64 $value) (float64 $default)) }}
{{- fail (printf "settings: %s is %s and device cpu: it is of CUDA devices; leave it out, or say cuda" $name (include "dragoman.setting" $value)) }}
{{- end }}
{{- end }}
{{- $contents := .max_contents | default 256 }}
{{- $waiting := .max_waiting | default 1024 }}
{{- if gt (float64 $contents) (float64 $waiting) }}
{{- fail (printf "settings: max_contents is %s and max_waiting %s: a call with that many texts would be refused for ever; lower max_contents or raise max_waiting" (include "dragoman.setting" $contents) (include "dragoman.setting" $waiting)) }}
{{- end }}
{{- $jwt := list .jwt_keys .jwt_issuer .jwt_audience }}
{{- if and (has nil $jwt) (compact $jwt) }}
{{- fail "settings: jwt_keys, jwt_issuer and jwt_audience need each other" }}
{{- end }}
{{- if and .canary_health (eq 0.0 (float64 (dig "canary_interval_s" 1 .))) }}
{{- fail "settings: canary_health needs canary_interval_s: nothing would be compared" }}
{{- end }}
{{- if and .log_text (not .log_requests) }}
{{- fail "settings: log_text needs log_requests: the texts would go into the line of their call" }}
{{- end }}
{{- if and .log_labels (not .log_requests) (not .otlp_endpoint) }}
{{- fail "settings: log_labels needs log_requests or otlp_endpoint: there is nothing to add the labels to" }}
{{- end }}
{{- if and (ne 1.0 (float64 (dig "trace_sample_ratio" 1 .))) (not .otlp_endpoint) }}
{{- fail "settings: trace_sample_ratio needs otlp_endpoint: there is nobody to send traces to" }}
{{- end }}
{{- if and .log_requests (has .log_level (list "warning" "error")) }}
{{- fail (printf "settings: log_requests writes lines of level info, and log_level is %s: lower it" .log_level) }}
{{- end }}
{{- end }}
