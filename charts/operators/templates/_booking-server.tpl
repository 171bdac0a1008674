{{/* Operators with a `provider` ask somebody outside of the cluster; the booking server stands in for it. */}}

{{/* Whether the booking server runs: true, or nothing. */}}
{{- define "operators.bookingServer" -}}
{{- $root := . -}}
{{- $isNeeded := false -}}
{{- range include "operators.enabled" . | fromJsonArray -}}
{{- with (get $root.Values.operators .).provider }}{{ if not .url }}{{ $isNeeded = true }}{{ end }}{{ end -}}
{{- end -}}
{{- $enabled := .Values.bookingServer.enabled -}}
{{- if ternary $isNeeded $enabled (kindIs "invalid" $enabled) }}true{{ end -}}
{{- end -}}

{{/* Whether an operator with a provider is enabled: true, or nothing. */}}
{{- define "operators.hasProvider" -}}
{{- $root := . -}}
{{- range include "operators.enabled" . | fromJsonArray }}{{ if (get $root.Values.operators .).provider }}true{{ end }}{{ end -}}
{{- end -}}

{{/* Flags for the operators of a unit that have a provider and name none. Takes the root and the unit. */}}
{{- define "operators.providerFlags" -}}
{{- $root := index . 0 -}}
{{- range (index . 1).operators }}
{{- with (get $root.Values.operators .).provider }}
{{- if and (not .url) (include "operators.bookingServer" $root) }}
- --booking-url=http://{{ include "operators.fullname" $root }}-booking-server.{{ $root.Release.Namespace }}.svc
{{- if not (or .secretName .tokenFile) }}
- --booking-token-secret={{ include "operators.providerSecret" $ }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
The Secret with the token of a unit's provider, or nothing. The operator makes it when it is not there: nothing here is random.
Takes the root and the unit.
*/}}
{{- define "operators.providerSecret" -}}
{{- $root := index . 0 -}}
{{- range (index . 1).operators }}
{{- with (get $root.Values.operators .).provider }}
{{- if .secretName }}{{ .secretName }}
{{- else if not (or .tokenFile .url (not (include "operators.bookingServer" $root))) }}{{ include "operators.fullname" $root }}-booking-token
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
