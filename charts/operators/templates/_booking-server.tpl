{{/* Operators with a `provider` call a service outside of the cluster. The booking server is the stand-in for that service. */}}

{{/* Whether the booking server runs: "true", or empty. */}}
{{- define "operators.bookingServer" -}}
{{- $root := . -}}
{{- $isNeeded := false -}}
{{- range include "operators.enabled" . | fromJsonArray -}}
{{- with (get $root.Values.operators .).provider }}{{ if not .url }}{{ $isNeeded = true }}{{ end }}{{ end -}}
{{- end -}}
{{- $enabled := .Values.bookingServer.enabled -}}
{{- if ternary $isNeeded $enabled (kindIs "invalid" $enabled) }}true{{ end -}}
{{- end -}}

{{/* Whether an operator with a provider is enabled: "true", or empty. */}}
{{- define "operators.hasProvider" -}}
{{- $root := . -}}
{{- range include "operators.enabled" . | fromJsonArray }}{{ if (get $root.Values.operators .).provider }}true{{ end }}{{ end -}}
{{- end -}}

{{/*
Flags that point a unit's operators to the booking server, if their values have a `provider` without a URL. Takes the root and
the unit.
*/}}
{{- define "operators.providerFlags" -}}
{{- $root := index . 0 -}}
{{- range (index . 1).operators }}
{{- with (get $root.Values.operators .).provider }}
{{- if and (not .url) (include "operators.bookingServer" $root) }}
{{- $certificate := include "operators.providerCertificate" $ }}
- --booking-url={{ ternary "https" "http" (not (empty $certificate)) }}://{{ include "operators.fullname" $root }}-booking-server.{{ $root.Release.Namespace }}.svc
{{- if and $certificate (not .certificateSecretName) }}
- --booking-certificate-secret={{ $certificate }}
{{- end }}
{{- if not (or .secretName .tokenFile) }}
- --booking-token-secret={{ include "operators.providerSecret" $ }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
The name of the Secret with the token of a unit's provider, or empty. The operator creates the Secret if it is missing. The chart
does not, because a random token would make each render different. Takes the root and the unit.
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

{{/*
The name of the Secret with the certificate of a unit's provider, or empty. The operator issues and renews it, so that each render
is the same. Takes the root and the unit.
*/}}
{{- define "operators.providerCertificate" -}}
{{- $root := index . 0 -}}
{{- range (index . 1).operators }}
{{- with (get $root.Values.operators .).provider }}
{{- if .certificateSecretName }}{{ .certificateSecretName }}
{{- else if not (or .url (not (include "operators.bookingServer" $root))) }}{{ include "operators.fullname" $root }}-booking-certificate
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
