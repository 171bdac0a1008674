{{/*
Alerts and dashboard panels, as JSON: a list with the contents of observability/manager.yaml and of the file of each enabled
operator that has one. The first of these files says what its words in capitals stand for. Takes the root and a dictionary with
replacements for these words.
*/}}
{{- define "operators.observability" -}}
{{- $root := index . 0 -}}
{{- $words := index . 1 -}}
{{- $all := list -}}
{{- range prepend (include "operators.enabled" $root | fromJsonArray) "manager" -}}
{{- $text := $root.Files.Get (printf "observability/%s.yaml" .) -}}
{{- range $word, $meaning := $words }}{{ $text = regexReplaceAllLiteral (printf "\\b%s\\b" $word) $text $meaning }}{{ end -}}
{{- with $text }}{{ $all = append $all (fromYaml .) }}{{ end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/*
Regular expressions of the names of the release's Deployments, which are those of their leases, and of the pods that it runs. A pod has
the name of its Deployment and two words, of which a long name leaves one. Both take the root.
*/}}
{{- define "operators.leases" -}}
{{- $components := list -}}
{{- range include "operators.units" . | fromJsonArray }}{{ $components = append $components .component }}{{ end -}}
{{ include "operators.fullname" . }}-({{ join "|" $components }})
{{- end -}}

{{- define "operators.podNames" -}}
{{ include "operators.leases" . | trimSuffix ")" }}|booking-server)-[^-]+(-[^-]+)?
{{- end -}}

{{/*
A selector with one series or more of each process of the release, and none of another program. No label of a scrape tells two
releases in one namespace apart: with the annotations `prometheus.io/*`, all programs may have the same `job` and no `pod`. But each
process names its lease, unless there is no election: then the namespace has to do. Takes the root.
*/}}
{{- define "operators.series" -}}
{{- if .Values.leaderElection.enabled -}}
leader_election_master_status{namespace={{ .Release.Namespace | quote }}, name=~{{ include "operators.leases" . | quote }}}
{{- else -}}
operator_build_info{namespace={{ .Release.Namespace | quote }}}
{{- end -}}
{{- end -}}

{{/*
An expression that has a value if the metrics of one of the Deployments are missing. Without an election, a Deployment with one
operator shows in the metrics of its controllers.
*/}}
{{- define "operators.absent" -}}
{{- $root := . -}}
{{- if .Values.leaderElection.enabled -}}
{{- $missing := list -}}
{{- range include "operators.units" . | fromJsonArray -}}
{{- $series := printf "leader_election_master_status{namespace=%q, name=%q}" $root.Release.Namespace .name -}}
{{- $missing = append $missing (printf "absent(%s)" $series) -}}
{{- end -}}
{{- join " or " $missing -}}
{{- else if eq .Values.topology "combined" -}}
absent(operator_build_info{namespace="{{ .Release.Namespace }}"})
{{- else -}}
{{- $missing := list -}}
{{- range include "operators.enabled" . | fromJsonArray -}}
{{- range include "operators.definitions" (list $root .) | fromJsonArray -}}
{{- $series := printf "controller_runtime_max_concurrent_reconciles{namespace=%q, controller=%q}" $root.Release.Namespace (lower .spec.names.kind) -}}
{{- $missing = append $missing (printf "absent(%s)" $series) -}}
{{- end -}}
{{- end -}}
{{- join " or " $missing -}}
{{- end -}}
{{- end -}}

{{/* The rules of the alerts, as JSON: a list of groups, each with its title and its rules. */}}
{{- define "operators.alerts" -}}
{{- $root := . -}}
{{- $values := .Values.prometheusRule -}}
{{- $words := dict
    "ABSENT" (include "operators.absent" .)
    "CERTIFICATE" (mulf 86400.0 $values.certificateDays | toString)
    "FULLNAME" (include "operators.fullname" .)
    "NAMESPACE" .Release.Namespace
    "OURS" (printf "on (cluster, job, instance) %s" (include "operators.series" .))
    "PODS" (include "operators.podNames" .)
-}}
{{- $runbooks := $root.Files.Get "files/runbooks.md" -}}
{{- range $placeholder, $meaning := dict "<namespace>" .Release.Namespace "<release>" (include "operators.fullname" .) -}}
{{- $runbooks = replace $placeholder $meaning $runbooks -}}
{{- end -}}
{{- $groups := list -}}
{{- range include "operators.observability" (list . $words) | fromJsonArray -}}
{{- $rules := list -}}
{{- range $rule := .alerts -}}
{{- $own := default dict (get (default dict $values.alerts) $rule.alert) -}}
{{- if ne (toString $own.enabled) "false" -}}
{{- $_ := set $rule "labels" (merge (dict) (default dict $own.labels) (default dict $values.alertLabels) $rule.labels) -}}
{{- with $own.for }}{{ $_ := set $rule "for" . }}{{ end -}}
{{- if $values.runbookUrl -}}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s%s" $values.runbookUrl (lower $rule.alert)) -}}
{{- else -}}
{{- $section := regexFind (printf "(?s)\n## %s\n.*?(\n## |$)" $rule.alert) $runbooks -}}
{{- $_ := set $rule.annotations "runbook" (regexReplaceAll "\n?## .*" $section "" | trim) -}}
{{- end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- $groups = append $groups (dict "title" .title "rules" $rules) -}}
{{- end -}}
{{- toJson $groups -}}
{{- end -}}
