{{/*
Gives each value that is null its default. Helm removes such a key. An example is a group of which a user has commented out all keys.
A template that reads a key below the missing one would fail. Null still empties lists and open mappings such as `resources`. Each
template calls this first, because Helm promises no order of templates. Takes the root.
*/}}
{{- define "operators.defaults" -}}
{{- $defaults := .Files.Get "files/defaults.yaml" | fromYaml -}}
{{- include "operators.defaultsBelow" (list .Values $defaults.values $defaults.emptied "") -}}
{{- end -}}

{{/* The same for one group. Takes its values, their defaults, the paths that null empties, and the path of the group with a dot. */}}
{{- define "operators.defaultsBelow" -}}
{{- $values := index . 0 -}}
{{- $emptied := index . 2 -}}
{{- $prefix := index . 3 -}}
{{- range $key, $default := index . 1 -}}
{{- $path := printf "%s%s" $prefix $key -}}
{{- if not (has $path $emptied) -}}
{{- if kindIs "invalid" (index $values $key) -}}
{{- $_ := set $values $key $default -}}
{{- else if kindIs "map" $default -}}
{{- include "operators.defaultsBelow" (list (index $values $key) $default $emptied (printf "%s." $path)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
