{{/* Refuses combinations of values that the schema cannot detect, with a message that begins with the key. */}}
{{- define "operators.refuse" -}}
{{- $root := . -}}
{{- $enabled := include "operators.enabled" . | fromJsonArray -}}
{{- if not $enabled -}}
{{- fail "operators.<name>.enabled: no operator is enabled; set it to true for at least one operator" -}}
{{- end -}}

{{- $full := include "operators.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $full) -}}
{{- $rule := "set one of lower-case letters, digits and hyphens, with a letter first" -}}
{{- fail (printf "fullnameOverride: names would begin with %q, which is no DNS label; %s" $full $rule) -}}
{{- end -}}

{{- $one := and (not (kindIs "invalid" .Values.replicas)) (le (int .Values.replicas) 1) -}}
{{- if and (not .Values.leaderElection.enabled) (not $one) -}}
{{- fail "leaderElection.enabled: must be true unless replicas is 1 or 0: otherwise all replicas would reconcile at once" -}}
{{- end -}}

{{- /* The manager would refuse these times, too, but only in a pod that then crashes. */}}
{{- if .Values.leaderElection.enabled -}}
{{- $times := dict -}}
{{- $start := toDate "2006-01-02" "2000-01-01" -}}
{{- range $key := list "leaseDuration" "renewDeadline" "retryPeriod" -}}
{{- with get $root.Values.leaderElection $key -}}
{{- $_ := set $times $key (sub (mustDateModify . $start).UnixMilli $start.UnixMilli) -}}
{{- end -}}
{{- end -}}
{{- if and $times.leaseDuration $times.renewDeadline (ge $times.renewDeadline $times.leaseDuration) -}}
{{- fail "leaderElection.renewDeadline: must be shorter than leaseDuration, or two leaders could overlap" -}}
{{- end -}}
{{- if and $times.renewDeadline $times.retryPeriod (ge (mulf 1.2 $times.retryPeriod) (float64 $times.renewDeadline)) -}}
{{- fail "leaderElection.retryPeriod: 1.2 times of it must be shorter than renewDeadline, or a leader has no second try" -}}
{{- end -}}
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
{{- range $label, $_ := default dict (get $root.Values $key) -}}
{{- if has $label $own -}}
{{- fail (printf "%s: the chart itself sets the label %s, by which Deployments and Services find their pods" $key $label) -}}
{{- end -}}
{{- if hasPrefix "rbac.authorization.k8s.io/aggregate-to-" $label -}}
{{- fail (printf "%s: %s would give the permissions of the operators to users" $key $label) -}}
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

{{- if not .Values.networkPolicy.enabled -}}
{{- range $key := list "egress" "metricsFrom" "probesFrom" "webhooksFrom" -}}
{{- if get $root.Values.networkPolicy $key -}}
{{- fail (printf "networkPolicy.%s: needs networkPolicy.enabled: true" $key) -}}
{{- end -}}
{{- end -}}
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

{{- /* The manager has no flags for these. A changed `resources` may as well be the default. */}}
{{- $proxy := .Values.metrics.proxy -}}
{{- if eq $proxy.kind "builtin" -}}
{{- $tls := default dict $proxy.tls -}}
{{- range $key, $isSet := dict
    "audiences" $proxy.audiences
    "extraArgs" $proxy.extraArgs
    "tls.cipherSuites" $tls.cipherSuites
    "tls.minVersion" (ne (default "VersionTLS12" $tls.minVersion) "VersionTLS12")
-}}
{{- if $isSet -}}
{{- $instead := "choose metrics-proxy or kube-rbac-proxy" -}}
{{- fail (printf "metrics.proxy.%s: has no effect with metrics.proxy.kind: builtin; %s" $key $instead) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- $ports := list 8080 8081 8444 -}}
{{- range $key, $port := dict "metrics.port" .Values.metrics.port "webhooks.port" .Values.webhooks.port -}}
{{- if has (int $port) $ports -}}
{{- fail (printf "%s: %d is already in use in the pods, choose another port" $key (int $port)) -}}
{{- end -}}
{{- $ports = append $ports (int $port) -}}
{{- end -}}

{{- /* The API server refuses a longer delay. One of the same length would leave no time for the reconciles that run. */}}
{{- $whole := int64 .Values.terminationGracePeriodSeconds -}}
{{- if and .Values.shutdownDelaySeconds (ge (int64 .Values.shutdownDelaySeconds) $whole) -}}
{{- $why := "which includes the delay and the time to finish running reconciles" -}}
{{- fail (printf "shutdownDelaySeconds: must be less than terminationGracePeriodSeconds (%d), %s" $whole $why) -}}
{{- end -}}

{{- /* The API server refuses a pod with two volumes of one name, or with two volumes at one path of a container. */}}
{{- range $unit := include "operators.units" . | fromJsonArray -}}
{{- $names := list -}}
{{- range include "operators.volumes" (list $root $unit) | fromYamlArray }}{{ $names = append $names .name }}{{ end -}}
{{- range $root.Values.extraVolumes -}}
{{- if has .name $names -}}
{{- fail (printf "extraVolumes: the pods of %s already have a volume %v, choose another name" $unit.name .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $paths := list -}}
{{- range include "operators.mounts" (list $root $unit) | fromYamlArray }}{{ $paths = append $paths .mountPath }}{{ end -}}
{{- range $root.Values.extraVolumeMounts -}}
{{- if has .mountPath $paths -}}
{{- fail (printf "extraVolumeMounts: the manager of %s already has a volume at %v, choose another path" $unit.name .mountPath) -}}
{{- end -}}
{{- $paths = append $paths .mountPath -}}
{{- end -}}
{{- end -}}

{{- if and .Values.bookingServer.enabled (not (include "operators.hasProvider" .)) -}}
{{- fail "bookingServer.enabled: no enabled operator uses the booking server; enable one that has a provider" -}}
{{- end -}}

{{- /* Otherwise the booking server would have to serve clients without a token, or get it over plain HTTP. */}}
{{- if include "operators.bookingServer" . -}}
{{- range $name := $enabled -}}
{{- with (get $root.Values.operators $name).provider -}}
{{- if and .tokenFile (not .secretName) -}}
{{- $instead := "use provider.secretName, or provider.url of another provider without bookingServer.enabled" -}}
{{- fail (printf "operators.%s.provider.tokenFile: the booking server of the chart cannot read this file; %s" $name $instead) -}}
{{- end -}}
{{- if and .url (not .secretName) -}}
{{- $why := "the Secret with the token for the booking server (bookingServer.enabled)" -}}
{{- fail (printf "operators.%s.provider.secretName: must name %s when provider.url is set" $name $why) -}}
{{- end -}}
{{- if and .caFile (not (or .url .certificateSecretName)) -}}
{{- $why := "the operator itself issues the certificate of the chart's booking server, and trusts it" -}}
{{- fail (printf "operators.%s.provider.caFile: must be empty unless provider.url is set: %s" $name $why) -}}
{{- end -}}
{{- end -}}
{{- end -}}
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

{{- if and .Values.webhooks.hostNetwork (not .Values.webhooks.enabled) -}}
{{- fail "webhooks.hostNetwork: needs webhooks.enabled: true, otherwise no pod runs in the nodes' network" -}}
{{- end -}}

{{- /* In the nodes' network, the Deployments would need the same ports of a node. */}}
{{- if .Values.webhooks.hostNetwork -}}
{{- $onHost := list -}}
{{- range include "operators.units" . | fromJsonArray }}{{ if .webhooks }}{{ $onHost = append $onHost .name }}{{ end }}{{ end -}}
{{- if gt (len $onHost) 1 -}}
{{- fail (printf "webhooks.hostNetwork: needs topology: combined, otherwise %s need the same ports of a node" (join ", " $onHost)) -}}
{{- end -}}
{{- end -}}

{{- /* Not at the first install: others may manage the definitions. */}}
{{- if and .Release.IsUpgrade (not .Values.crds.enabled) (not .Values.crds.keep) -}}
{{- $why := "Helm would delete the definitions that the release has installed, and all objects of their kinds" -}}
{{- fail (printf "crds.enabled: with crds.keep: false, %s; set crds.keep: true first, in an upgrade of its own" $why) -}}
{{- end -}}
{{- end -}}
