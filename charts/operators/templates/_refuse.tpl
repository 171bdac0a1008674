{{/* Refuses combinations of values that the schema cannot detect, with a message that begins with the key. */}}
{{- define "operators.refuse" -}}
{{- $root := . -}}
{{- $enabled := include "operators.enabled" . | fromJsonArray -}}
{{- if not $enabled -}}
{{- fail "operators.<name>.enabled: no operator is enabled; set it to true for at least one operator" -}}
{{- end -}}

{{- $one := and (not (kindIs "invalid" .Values.replicas)) (le (int .Values.replicas) 1) -}}
{{- if and (not .Values.leaderElection.enabled) (not $one) -}}
{{- fail "leaderElection.enabled: must be true unless replicas is 1 or 0: otherwise all replicas would reconcile at once" -}}
{{- end -}}

{{- range $name := $enabled -}}
{{- $operator := get $root.Values.operators $name -}}
{{- range $key := list "resources" "env" -}}
{{- if and (get $operator $key) (eq $root.Values.topology "combined") -}}
{{- fail (printf "operators.%s.%s: needs topology: separate, otherwise all operators share one pod" $name $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- $own := list "helm.sh/chart" -}}
{{- range list "name" "instance" "version" "component" "part-of" "managed-by" }}{{ $own = append $own (printf "app.kubernetes.io/%s" .) }}{{ end -}}
{{- range $key := list "commonLabels" "podLabels" -}}
{{- range $label, $_ := get $root.Values $key -}}
{{- if has $label $own -}}
{{- fail (printf "%s: the chart itself sets the label %s, by which Deployments and Services find their pods" $key $label) -}}
{{- end -}}
{{- if and (eq $key "podLabels") (hasKey (default dict $root.Values.commonLabels) $label) -}}
{{- fail (printf "podLabels: commonLabels also has the label %s" $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- range $key, $_ := .Values.commonAnnotations -}}
{{- if hasPrefix "helm.sh/hook" $key -}}
{{- fail (printf "commonAnnotations: %s would make every object a hook, which Helm does not count to the release" $key) -}}
{{- end -}}
{{- end -}}

{{- if and .Values.caBundle.configMapName .Values.caBundle.secretName -}}
{{- fail "caBundle.secretName: must be empty when caBundle.configMapName is set" -}}
{{- end -}}

{{- if and .Values.networkPolicy.egress (not .Values.networkPolicy.enabled) -}}
{{- fail "networkPolicy.egress: needs networkPolicy.enabled: true" -}}
{{- end -}}

{{- if and .Values.watchNamespaces .Values.watchNamespaceLabels -}}
{{- fail "watchNamespaceLabels: must be empty when watchNamespaces is set; name the namespaces, or their labels" -}}
{{- end -}}

{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name: must be set when serviceAccount.create is false" -}}
{{- end -}}

{{- if not .Values.metrics.enabled -}}
{{- range $key := list "prometheusRule" "dashboard" -}}
{{- if (get $root.Values $key).enabled -}}
{{- fail (printf "%s.enabled: needs metrics.enabled: true, otherwise there is nothing to see" $key) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "serviceMonitor" "podMonitor" -}}
{{- if (get $root.Values.metrics $key).enabled -}}
{{- fail (printf "metrics.%s.enabled: needs metrics.enabled: true, otherwise there is nothing to scrape" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $alerts := list -}}
{{- range $path, $_ := .Files.Glob "observability/*.yaml" -}}
{{- range ($root.Files.Get $path | fromYaml).alerts }}{{ $alerts = append $alerts .alert }}{{ end -}}
{{- end -}}
{{- range $name, $_ := .Values.prometheusRule.alerts -}}
{{- if not (has $name $alerts) -}}
{{- fail (printf "prometheusRule.alerts.%s: there is no such alert; the alerts are %s" $name (sortAlpha $alerts | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.podMonitor.enabled: must be false when metrics.serviceMonitor.enabled is true, or samples are duplicated" -}}
{{- end -}}

{{- $ports := list 8080 8081 8444 -}}
{{- range $key, $port := dict "metrics.port" .Values.metrics.port "webhooks.port" .Values.webhooks.port -}}
{{- if has (int $port) $ports -}}
{{- fail (printf "%s: %d is already in use in the pods, choose another port" $key (int $port)) -}}
{{- end -}}
{{- $ports = append $ports (int $port) -}}
{{- end -}}

{{- if and .Values.bookingServer.enabled (not (include "operators.hasProvider" .)) -}}
{{- fail "bookingServer.enabled: no enabled operator uses the booking server; enable one that has a provider" -}}
{{- end -}}

{{- range $name, $operator := .Values.operators -}}
{{- with $operator.provider -}}
{{- if and .secretName .tokenFile -}}
{{- fail (printf "operators.%s.provider.secretName: must be empty when provider.tokenFile is set" $name) -}}
{{- end -}}
{{- if and .certificateSecretName .caFile -}}
{{- fail (printf "operators.%s.provider.certificateSecretName: must be empty when provider.caFile is set" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if and .Values.webhooks.certManager.enabled (not .Values.webhooks.enabled) -}}
{{- fail "webhooks.certManager.enabled: needs webhooks.enabled: true, otherwise there is nothing to certify" -}}
{{- end -}}
{{- end -}}
