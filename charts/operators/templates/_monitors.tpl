{{/* Whether the chart renders a monitor: "true", or empty. Takes the root, the values of the monitor and its kind. */}}
{{- define "operators.isMonitored" -}}
{{- $root := index . 0 -}}
{{- $monitor := index . 1 -}}
{{- $isKnown := $root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2)) -}}
{{- if and $monitor.enabled (or $isKnown (ne $monitor.ifMissing "skip")) }}true{{ end -}}
{{- end -}}

{{/* The endpoint of a ServiceMonitor or PodMonitor. Takes the root and the values of the monitor. */}}
{{- define "operators.endpoint" -}}
{{- $root := index . 0 -}}
{{- $monitor := index . 1 -}}
port: metrics
path: /metrics
honorLabels: true {{- /* keeps the label `namespace` of the object that a metric is about; the pod's would replace it */}}
{{- if eq $root.Values.metrics.proxy.kind "none" }}
scheme: http
{{- else }}
scheme: https
authorization:
  credentials:
    name: {{ default (printf "%s-metrics-reader" (include "operators.fullname" $root)) $monitor.tokenSecret.name | quote }}
    key: {{ $monitor.tokenSecret.key }}
tlsConfig:
  {{- toYaml (default (dict "insecureSkipVerify" true) $monitor.tlsConfig) | nindent 2 }}
{{- end }}
{{- with $monitor.interval }}
interval: {{ . }}
{{- end }}
{{- with $monitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with $monitor.relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
