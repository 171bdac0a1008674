{{/* Everything about a single operator comes from the generated files/<operator>. So no template names an operator. */}}

{{/* The names of the enabled operators, as JSON. */}}
{{- define "operators.enabled" -}}
{{- $names := list -}}
{{- range $name, $operator := .Values.operators -}}
{{- if and $operator $operator.enabled }}{{ $names = append $names $name }}{{ end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/*
The units, as JSON. A unit is one Deployment with everything that belongs to it: it has a name, a component, its operators, a
ServiceAccount and its webhooks. There is one unit for all operators, or one for each operator.
*/}}
{{- define "operators.units" -}}
{{- $root := . -}}
{{- $names := include "operators.enabled" . | fromJsonArray -}}
{{- $units := list -}}
{{- if eq .Values.topology "combined" -}}
{{- $units = list (dict "component" "controller-manager" "operators" $names) -}}
{{- else -}}
{{- range $names }}{{ $units = append $units (dict "component" . "operators" (list .)) }}{{ end -}}
{{- end -}}
{{- range $units -}}
{{- $name := printf "%s-%s" (include "operators.fullname" $root) .component -}}
{{- $_ := set . "name" $name -}}
{{- $account := default $name $root.Values.serviceAccount.name -}}
{{- if and $root.Values.serviceAccount.name (eq $root.Values.topology "separate") -}}
{{- $account = printf "%s-%s" $account .component -}}
{{- end -}}
{{- $_ := set . "serviceAccount" $account -}}
{{- $_ := set . "webhooks" (include "operators.webhooks" (list $root .operators) | fromJson) -}}
{{- end -}}
{{- toJson $units -}}
{{- end -}}

{{/*
The webhooks of some operators, as JSON: the entries `validating` and `mutating`, and the names of the `definitions` that need
conversion. An empty object if there are none or webhooks are disabled. Takes the root and the names.
*/}}
{{- define "operators.webhooks" -}}
{{- $root := index . 0 -}}
{{- $all := dict "validating" list "mutating" list "definitions" list -}}
{{- if $root.Values.webhooks.enabled -}}
{{- range index . 1 -}}
{{- $own := $root.Files.Get (printf "files/%s/webhooks.yaml" .) | fromYaml -}}
{{- range $key := list "validating" "mutating" -}}
{{- $_ := set $all $key (concat (get $all $key) (default list (get $own $key))) -}}
{{- end -}}
{{- if $own -}}
{{- $_ := set $all "definitions" (concat $all.definitions $own.conversion.definitions) -}}
{{- $_ := set $all "path" $own.conversion.path -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if or $all.validating $all.mutating $all.definitions }}{{ toJson $all }}{{ else }}{{ dict | toJson }}{{ end -}}
{{- end -}}

{{/*
The webhook configurations of a unit, as JSON: their entries by the name of the configuration. With cert-manager, each entry has a
configuration of its own. cert-manager namely owns the field `caBundle` of the entry. If the entry disappeared from a configuration
that stays, server-side apply would leave this field alone in it, and the API server would refuse the rest of an entry. The manager
gives up this field after each write, so its entries can share a configuration. Takes the root, the unit and its entries of one kind.
*/}}
{{- define "operators.configurations" -}}
{{- $root := index . 0 -}}
{{- $unit := index . 1 -}}
{{- $configurations := dict -}}
{{- range $entry := index . 2 -}}
{{- $name := $unit.name -}}
{{- if $root.Values.webhooks.certManager.enabled -}}
{{- $name = printf "%s-%s" (include "operators.fullname" $root) $entry.name -}}
{{- end -}}
{{- $_ := set $configurations $name (append (default list (get $configurations $name)) $entry) -}}
{{- end -}}
{{- toJson $configurations -}}
{{- end -}}

{{/* The CustomResourceDefinitions of an operator, as JSON. Takes the root and the name. */}}
{{- define "operators.definitions" -}}
{{- $definitions := list -}}
{{- $root := index . 0 -}}
{{- range $path, $_ := $root.Files.Glob (printf "files/%s/crd-*.yaml" (index . 1)) -}}
{{- $definitions = append $definitions ($root.Files.Get $path | fromYaml) -}}
{{- end -}}
{{- toJson $definitions -}}
{{- end -}}

{{/* The value at a path of keys; empty if a key is missing. Takes an object and the path. */}}
{{- define "operators.at" -}}
{{- $value := index . 0 -}}
{{- range $key := index . 1 -}}
{{- if kindIs "map" $value }}{{ $value = get $value $key }}{{ else }}{{ $value = "" }}{{ end -}}
{{- end -}}
{{- if not (kindIs "invalid" $value) }}{{ $value }}{{ end -}}
{{- end -}}

{{/* Flags for those of an operator's own values that differ from the default. Takes the root and the name. */}}
{{- define "operators.ownFlags" -}}
{{- $root := index . 0 -}}
{{- $values := get $root.Values.operators (index . 1) -}}
{{- range $root.Files.Get (printf "files/%s/flags.yaml" (index . 1)) | fromYamlArray }}
{{- $value := include "operators.at" (list $values .value) }}
{{- if and $value (ne $value .default) }}
- {{ printf "%s=%s" .flag $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
Whether `helm test` may test an operator: "true", or empty. It tests an operator with a provider only against the booking server.
Takes the root and the name.
*/}}
{{- define "operators.isTestable" -}}
{{- $root := index . 0 -}}
{{- $provider := (get $root.Values.operators (index . 1)).provider -}}
{{- if or (not $provider) (and (not $provider.url) (include "operators.bookingServer" $root)) }}true{{ end -}}
{{- end -}}
