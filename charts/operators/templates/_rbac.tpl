{{/*
A role and its binding, for the whole cluster or for one namespace. Takes a dictionary: root, component, name, namespace (empty
for the whole cluster), rules (a list), account (the ServiceAccount), binding (the name of the binding, if it is not that of the role),
annotations (optional).
*/}}
{{- define "operators.grant" -}}
{{- $grant := . -}}
{{- range $kind := list "Role" "RoleBinding" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if not $grant.namespace }}Cluster{{ end }}{{ $kind }}
metadata:
  name: {{ ternary $grant.name (default $grant.name $grant.binding) (eq $kind "Role") | quote }}
  {{- with $grant.namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "operators.labels" $grant.root | nindent 4 }}
    app.kubernetes.io/component: {{ $grant.component | quote }}
  {{- include "operators.annotations" (list $grant.root $grant.annotations) }}
{{- if eq $kind "Role" }}
rules:
  {{- toYaml $grant.rules | nindent 2 }}
{{- else }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ if not $grant.namespace }}Cluster{{ end }}Role
  name: {{ $grant.name | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ $grant.account | quote }}
    namespace: {{ $grant.root.Release.Namespace | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A rule for one resource, as JSON. Takes the API group, the resource, the names (empty for all) and the verbs. */}}
{{- define "operators.rule" -}}
{{- $rule := dict "apiGroups" (list (index . 0)) "resources" (list (index . 1)) "verbs" (index . 3) -}}
{{- with index . 2 }}{{ $_ := set $rule "resourceNames" . }}{{ end -}}
{{- toJson $rule -}}
{{- end -}}

{{/*
The rules that an operator's controllers need, as JSON. Takes the root and the name. Leaves out those about Secrets where `readSecrets`
is false. With `watchNamespaces`, leaves out those about definitions, which are in no namespace: a Role cannot grant them, and the
operator does without.
*/}}
{{- define "operators.rules" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $omitted := list -}}
{{- if not (get $root.Values.operators $name).readSecrets }}{{ $omitted = append $omitted "secrets" }}{{ end -}}
{{- if $root.Values.watchNamespaces }}{{ $omitted = append $omitted "customresourcedefinitions" }}{{ end -}}
{{- $rules := list -}}
{{- range $root.Files.Get (printf "files/%s/clusterrole-rules.yaml" $name) | fromYamlArray -}}
{{- if not (has (first .resources) $omitted) -}}
{{- $rules = append $rules . -}}
{{- end -}}
{{- end -}}
{{- toJson $rules -}}
{{- end -}}
