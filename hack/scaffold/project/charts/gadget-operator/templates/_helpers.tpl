{{- /* The labels by which the Deployment selects its pods. They can never change. */}}
{{- define "selector" -}}
app.kubernetes.io/name: gadget-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "labels" -}}
{{ include "selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /*
The webhook configurations as JSON, in an object with the key `items`: those that follow from the code, with the names of the release.
They are none if the code declares no webhook, or webhooks are disabled. With a list of namespaces, they hold in these alone. A missing
value is `true`: with --reuse-values, an upgrade has the values of an earlier chart.
*/}}
{{- define "webhooks" -}}
{{- $root := . -}}
{{- $items := list -}}
{{- $values := ternary dict .Values.webhooks (kindIs "invalid" .Values.webhooks) -}}
{{- $documents := ternary "" (.Files.Get "files/webhooks.yaml") (eq (toString $values.enabled) "false") -}}
{{- range $document := splitList "\n---\n" $documents -}}
{{- $configuration := fromYaml $document -}}
{{- if $configuration.kind -}}
{{- $_ := set $configuration "metadata" (dict "name" $root.Release.Name "labels" (include "labels" $root | fromYaml)) -}}
{{- range $webhook := $configuration.webhooks -}}
{{- $service := dict "namespace" $root.Release.Namespace "name" (printf "%s-webhooks" $root.Release.Name) -}}
{{- $_ := set $webhook.clientConfig "service" (merge $service $webhook.clientConfig.service) -}}
{{- with $root.Values.watchNamespaces -}}
{{- $names := dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" . -}}
{{- $_ := set $webhook "namespaceSelector" (dict "matchExpressions" (list $names)) -}}
{{- end -}}
{{- end -}}
{{- $items = append $items $configuration -}}
{{- end -}}
{{- end -}}
{{- dict "items" $items | toJson -}}
{{- end }}

{{- /*
A role with these rules and its binding to the operator: in the whole cluster, or in one namespace. Takes a dictionary: root, name,
binding (the name of the binding, if it is not that of the role), namespace (empty for the whole cluster), rules.
*/}}
{{- define "grant" -}}
{{- $scope := ternary "" "Cluster" (not (empty .namespace)) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}Role
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "labels" .root | nindent 4 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}RoleBinding
metadata:
  name: {{ default .name .binding }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $scope }}Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .root.Release.Name }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
