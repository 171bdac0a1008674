{{/* Names, labels and images. */}}

{{- define "operators.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/*
The prefix of all names: the release's name, followed by the chart's name unless the release's name contains it. At most 35
characters, since templates append up to 28 in names of Services, which have at most 63. A longer name is cut and ends with four
characters of its hash, so that two long names stay different.
*/}}
{{- define "operators.fullname" -}}
{{- $name := include "operators.name" . -}}
{{- $full := default (ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name)) .Values.fullnameOverride -}}
{{- if gt (len $full) 35 -}}
{{- $full = printf "%s-%s" (trunc 30 $full | trimSuffix "-") (sha256sum $full | trunc 4) -}}
{{- end -}}
{{- trimSuffix "-" $full -}}
{{- end -}}

{{- define "operators.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "operators.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/part-of: {{ include "operators.name" . | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
The labels of an object that has labels of its own, which take precedence over all others: a mapping must not have a key twice.
Takes the root, the component (empty for none) and the own labels.
*/}}
{{- define "operators.labelsWith" -}}
{{- $labels := include "operators.labels" (index . 0) -}}
{{- with index . 1 }}{{ $labels = printf "%s\napp.kubernetes.io/component: %s" $labels (toYaml .) }}{{ end -}}
{{- with index . 2 }}{{ $labels = toYaml (merge (dict) . (fromYaml $labels)) }}{{ end -}}
{{- $labels -}}
{{- end -}}

{{/*
The annotations of an object: its own and `commonAnnotations`. If both have a key, the object's own value holds. Nothing if there are
none. Takes the root and the own annotations.
*/}}
{{- define "operators.annotations" -}}
{{- with merge (dict) (default dict (index . 1)) (default dict (index . 0).Values.commonAnnotations) }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end -}}

{{/*
The labels that select the pods of a component. They must never change: a Deployment's selector is immutable. Takes the root and
the component.
*/}}
{{- define "operators.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "operators.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 | quote }}
{{- end -}}

{{/*
An image by digest or tag, with the prefix `imageRegistry` if its repository is the chart's default: a user's own repository stays
as it is. Takes the root, the values of the image, its default tag and its name in files/images.yaml.
*/}}
{{- define "operators.imageOf" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $default := get ($root.Files.Get "files/images.yaml" | fromYaml) (index . 3) -}}
{{- $repository := default $default $image.repository -}}
{{- if and $root.Values.imageRegistry (eq $repository $default) }}{{ trimSuffix "/" $root.Values.imageRegistry }}/{{ end -}}
{{- $repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default (index . 2) $image.tag }}{{ end -}}
{{- end -}}

{{- define "operators.image" -}}
{{- include "operators.imageOf" (list . .Values.image .Chart.AppVersion "image") -}}
{{- end -}}

{{/*
Own annotations of an object that outlives its release, because users' data depend on it. Each installer has its own: Helm; Argo CD,
which takes Helm's annotation as `Delete=false` only and would still prune the object, and which else calls the application out of
sync for ever when the object is no longer rendered; and the kustomize-controller of Flux. The other options that the annotations
already have for Argo CD stay. Takes the root and the other own annotations.
*/}}
{{- define "operators.kept" -}}
{{- $own := index . 1 -}}
{{- $common := default dict (index . 0).Values.commonAnnotations -}}
{{- $kept := dict "helm.sh/resource-policy" "keep" "kustomize.toolkit.fluxcd.io/prune" "disabled" -}}
{{- range $key, $ours := dict
    "argocd.argoproj.io/sync-options" (list "Prune=false" "Delete=false")
    "argocd.argoproj.io/compare-options" (list "IgnoreExtraneous")
-}}
{{- $names := list -}}
{{- range $ours }}{{ $names = append $names (splitList "=" . | first) }}{{ end -}}
{{- $options := list -}}
{{- range splitList "," (default (get $common $key) (get $own $key)) -}}
{{- $isOurs := has (splitList "=" . | first | trim) $names -}}
{{- if and (trim .) (not $isOurs) }}{{ $options = append $options (trim .) }}{{ end -}}
{{- end -}}
{{- $_ := set $kept $key (concat $options $ours | join ",") -}}
{{- end -}}
{{- toYaml (merge $kept $own) -}}
{{- end -}}
