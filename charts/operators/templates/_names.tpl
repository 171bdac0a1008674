{{/* Names, labels and images. */}}

{{- define "operators.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/*
The prefix of all names: the release's name, followed by the chart's name unless the release's name contains it. Shortened to 40
characters, since templates append to it.
*/}}
{{- define "operators.fullname" -}}
{{- $name := include "operators.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "operators.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "operators.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/part-of: {{ include "operators.name" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
The labels that select the pods of a component. They must never change: a Deployment's selector is immutable. Takes the root and
the component.
*/}}
{{- define "operators.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "operators.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* An image by digest or tag, with the prefix `imageRegistry`. Takes the root, the values of the image and its default tag. */}}
{{- define "operators.imageOf" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.imageRegistry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default (index . 2) $image.tag }}{{ end -}}
{{- end -}}

{{- define "operators.image" -}}
{{- include "operators.imageOf" (list . .Values.image .Chart.AppVersion) -}}
{{- end -}}
