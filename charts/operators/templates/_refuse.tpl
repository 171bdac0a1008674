{{/* Combinations of values that the schema cannot see, refused with a sentence that names the key. */}}
{{- define "operators.refuse" -}}
{{- $root := . -}}
{{- $enabled := include "operators.enabled" . | fromJsonArray -}}
{{- if not $enabled -}}
{{- fail "operators.<name>.enabled: no operator is enabled; set it to true for one at least" -}}
{{- end -}}

{{- $one := and (not (kindIs "invalid" .Values.replicas)) (le (int .Values.replicas) 1) -}}
{{- if and (not .Values.leaderElection.enabled) (not $one) -}}
{{- fail "leaderElection.enabled: must be true unless replicas is 1 or 0: without an election, all replicas would work at once" -}}
{{- end -}}

{{- range $name := $enabled -}}
{{- $operator := get $root.Values.operators $name -}}
{{- range $key := list "resources" "env" -}}
{{- if and (get $operator $key) (eq $root.Values.topology "combined") -}}
{{- fail (printf "operators.%s.%s: needs topology: separate, since all operators share one pod otherwise" $name $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name: must be there when serviceAccount.create is false" -}}
{{- end -}}

{{- if not .Values.metrics.enabled -}}
{{- range $key := list "serviceMonitor" "podMonitor" -}}
{{- if (get $root.Values.metrics $key).enabled -}}
{{- fail (printf "metrics.%s.enabled: there is nothing to scrape while metrics.enabled is false" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.podMonitor.enabled: every sample would be there twice, since metrics.serviceMonitor.enabled is true too" -}}
{{- end -}}

{{- $ports := list 8080 8081 8444 -}}
{{- range $key, $port := dict "metrics.port" .Values.metrics.port "webhooks.port" .Values.webhooks.port -}}
{{- if has (int $port) $ports -}}
{{- fail (printf "%s: %d is taken in the pods, choose another" $key (int $port)) -}}
{{- end -}}
{{- $ports = append $ports (int $port) -}}
{{- end -}}

{{- if and .Values.bookingServer.enabled (not (include "operators.hasProvider" .)) -}}
{{- fail "bookingServer.enabled: nobody books while the operators with a provider are disabled" -}}
{{- end -}}

{{- range $name, $operator := .Values.operators -}}
{{- with $operator.provider -}}
{{- if and .secretName .tokenFile -}}
{{- fail (printf "operators.%s.provider.secretName: the token is one, and provider.tokenFile names another" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if and .Values.webhooks.certManager.enabled (not .Values.webhooks.enabled) -}}
{{- fail "webhooks.certManager.enabled: there is nothing to certify while webhooks.enabled is false" -}}
{{- end -}}
{{- end -}}
