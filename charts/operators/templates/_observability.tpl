{{/*
Alerts and dashboard panels, as JSON: a list with the contents of observability/manager.yaml and of the file of each enabled
operator that has one.
*/}}
{{- define "operators.observability" -}}
{{- $root := . -}}
{{- $all := list -}}
{{- range prepend (include "operators.enabled" . | fromJsonArray) "manager" -}}
{{- with $root.Files.Get (printf "observability/%s.yaml" .) }}{{ $all = append $all (fromYaml .) }}{{ end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}
