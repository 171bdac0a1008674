{{/* Parts of pods. */}}

{{/* The labels of the watched namespaces, as KEY=VALUE,KEY=VALUE. */}}
{{- define "operators.namespaceLabels" -}}
{{- $labels := list -}}
{{- range $key, $value := .Values.watchNamespaceLabels -}}
{{- $labels = append $labels (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- join "," $labels -}}
{{- end -}}

{{/* The flags of the manager. Takes the root and the unit. */}}
{{- define "operators.args" -}}
{{- $root := index . 0 -}}
{{- $unit := index . 1 -}}
{{- $values := $root.Values -}}
- run
- --operators={{ join "," $unit.operators }}
{{- with $values.watchNamespaces }}
- --watch-namespaces={{ join "," . }}
{{- end }}
{{- with include "operators.namespaceLabels" $root }}
- --watch-namespace-selector={{ . }}
{{- end }}
{{- $concurrency := list }}
{{- range $name := $unit.operators }}
{{- with (get $values.operators $name).maxConcurrentReconciles }}
{{- $number := int . }}
{{- range include "operators.definitions" (list $root $name) | fromJsonArray }}
{{- $concurrency = append $concurrency (printf "%s.%s=%d" .spec.names.kind .spec.group $number) }}
{{- end }}
{{- end }}
{{- end }}
{{- with $concurrency }}
- --max-concurrent-reconciles={{ join "," . }}
{{- end }}
{{- if $values.leaderElection.enabled }}
- --leader-elect
- --leader-election-id={{ $unit.name }}
- --leader-elect-lease-duration={{ $values.leaderElection.leaseDuration }}
- --leader-elect-renew-deadline={{ $values.leaderElection.renewDeadline }}
- --leader-elect-retry-period={{ $values.leaderElection.retryPeriod }}
{{- end }}
{{- if not $values.metrics.enabled }}
- --metrics-bind-address=0
{{- else if eq $values.metrics.proxy.kind "none" }}
- --metrics-bind-address=:8080
{{- else if eq $values.metrics.proxy.kind "builtin" }}
- --metrics-bind-address=:{{ $values.metrics.port }}
- --metrics-secure
{{- if $values.metrics.proxy.tls.secretName }}
- --metrics-cert-dir=/certificates/metrics
{{- end }}
{{- end }}
{{- if $unit.webhooks }}
- --webhook-bind-address=:{{ $values.webhooks.port }}
- --webhook-service={{ $unit.name }}-webhooks
{{- if $values.webhooks.certManager.enabled }}
- --webhook-cert-dir=/certificates/webhooks
{{- else }}
- --webhook-configuration={{ $unit.name }}
- --webhook-cert-secret={{ $unit.name }}-webhook-certificate
{{- end }}
{{- else }}
- --enable-webhooks=false
{{- end }}
{{- with $values.imageRegistry }}
- --image-registry={{ . }}
{{- end }}
{{- if not $values.fixedUserIds }}
- --fixed-user-ids=false
{{- end }}
- --log-level={{ $values.telemetry.logLevel }}
- --log-format={{ $values.telemetry.logFormat }}
{{- with $values.telemetry.otlpEndpoint }}
- --otlp-endpoint={{ . }}
{{- end }}
{{- range $unit.operators }}
{{- include "operators.ownFlags" (list $root .) }}
{{- end }}
{{- include "operators.providerFlags" (list $root $unit) }}
{{- range $values.extraArgs }}
- {{ quote . }}
{{- end }}
{{- end -}}

{{/*
The ServiceAccount of the sidecar in a unit's pods, which may only ask for reviews; empty if there is no sidecar. It needs a role,
so without `rbac.create` or `serviceAccount.create` the sidecar has the account of its pod. Takes the root and the unit.
*/}}
{{- define "operators.proxyAccount" -}}
{{- $root := index . 0 -}}
{{- $metrics := $root.Values.metrics -}}
{{- $isProxied := and $metrics.enabled (has $metrics.proxy.kind (list "metrics-proxy" "kube-rbac-proxy")) -}}
{{- if and $isProxied $root.Values.serviceAccount.create $root.Values.rbac.create }}{{ (index . 1).name }}-metrics-proxy{{ end -}}
{{- end -}}

{{/*
What a container does before it stops: it goes on until the nodes send it no more requests. Takes the root.
*/}}
{{- define "operators.lifecycle" -}}
{{- with .Values.shutdownDelaySeconds }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ . }}
{{- end }}
{{- end -}}

{{/*
The sidecar that authorizes readers of metrics: metrics-proxy from our image, or kube-rbac-proxy with the same flags. Takes the root
and the unit.
*/}}
{{- define "operators.proxy" -}}
{{- $root := index . 0 -}}
{{- $account := include "operators.proxyAccount" . -}}
{{- $proxy := $root.Values.metrics.proxy -}}
- name: metrics-proxy
  {{- if eq $proxy.kind "kube-rbac-proxy" }}
  image: {{ include "operators.imageOf" (list $root $proxy.image "latest" "metrics.proxy.image") | quote }}
  {{- else }}
  image: {{ include "operators.image" $root | quote }}
  command: [/metrics-proxy]
  {{- end }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  terminationMessagePolicy: FallbackToLogsOnError
  args:
    - --secure-listen-address=:{{ $root.Values.metrics.port }}
    - --upstream=http://127.0.0.1:8080/
    - --allow-paths=/metrics
    - --proxy-endpoints-port=8444
    - --tls-min-version={{ $proxy.tls.minVersion }}
    {{- with $proxy.tls.cipherSuites }}
    - --tls-cipher-suites={{ join "," . }}
    {{- end }}
    {{- if $proxy.tls.secretName }}
    - --tls-cert-file=/certificates/metrics/tls.crt
    - --tls-private-key-file=/certificates/metrics/tls.key
    {{- end }}
    {{- with $proxy.audiences }}
    - --auth-token-audiences={{ join "," . }}
    {{- end }}
    {{- range $proxy.extraArgs }}
    - {{ quote . }}
    {{- end }}
  ports:
    - name: metrics
      containerPort: {{ $root.Values.metrics.port }}
    - name: proxy-probes
      containerPort: 8444
  livenessProbe:
    httpGet:
      path: /healthz
      port: proxy-probes
      scheme: HTTPS
    periodSeconds: 20
  {{- with include "operators.lifecycle" $root | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $proxy.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.securityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if or $account $proxy.tls.secretName }}
  volumeMounts:
    {{- if $account }}
    # In the place of the token of the operators' account, which Kubernetes would else mount here.
    - name: metrics-proxy-token
      mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      readOnly: true
    {{- end }}
    {{- if $proxy.tls.secretName }}
    - name: metrics-certificate
      mountPath: /certificates/metrics
      readOnly: true
    {{- end }}
  {{- end }}
{{- end -}}

{{/* The chart's own volumes of a unit's pods. Takes the root and the unit. */}}
{{- define "operators.volumes" -}}
{{- $root := index . 0 -}}
{{- $unit := index . 1 -}}
{{- $bundle := $root.Values.caBundle -}}
{{- $metrics := $root.Values.metrics -}}
{{- if or $bundle.configMapName $bundle.secretName }}
- name: ca-bundle
  {{- if $bundle.configMapName }}
  configMap:
    name: {{ $bundle.configMapName | quote }}
  {{- else }}
  secret:
    secretName: {{ $bundle.secretName | quote }}
  {{- end }}
    items:
      - {key: {{ $bundle.key | quote }}, path: {{ $bundle.key | quote }}}
{{- end }}
{{- if and $unit.webhooks $root.Values.webhooks.certManager.enabled }}
- name: webhook-certificate
  secret:
    secretName: {{ $unit.name }}-webhook-certificate
{{- end }}
{{- with include "operators.proxyAccount" . }}
- name: metrics-proxy-token
  secret:
    secretName: {{ . | quote }}
    # The sidecar does not start before the API server has filled in all of them.
    items:
      {{- range list "ca.crt" "namespace" "token" }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}
{{- if and $metrics.enabled (ne $metrics.proxy.kind "none") $metrics.proxy.tls.secretName }}
- name: metrics-certificate
  secret:
    secretName: {{ $metrics.proxy.tls.secretName | quote }}
{{- end }}
{{- end -}}

{{/* The chart's own volume mounts of the manager. Takes the root and the unit. */}}
{{- define "operators.mounts" -}}
{{- $root := index . 0 -}}
{{- $unit := index . 1 -}}
{{- $bundle := $root.Values.caBundle -}}
{{- $metrics := $root.Values.metrics -}}
{{- if or $bundle.configMapName $bundle.secretName }}
- name: ca-bundle
  mountPath: /certificates/authorities
  readOnly: true
{{- end }}
{{- if and $unit.webhooks $root.Values.webhooks.certManager.enabled }}
- name: webhook-certificate
  mountPath: /certificates/webhooks
  readOnly: true
{{- end }}
{{- if and $metrics.enabled (eq $metrics.proxy.kind "builtin") $metrics.proxy.tls.secretName }}
- name: metrics-certificate
  mountPath: /certificates/metrics
  readOnly: true
{{- end }}
{{- end -}}

{{/* Scheduling of a pod, and the Secrets for pulling its images. Takes the root and the component. */}}
{{- define "operators.placement" -}}
{{- $root := index . 0 -}}
{{- $values := $root.Values -}}
{{- $component := index . 1 -}}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  {{- $selector := dict "matchLabels" (include "operators.selector" (list $root $component) | fromYaml) }}
  - {{- toYaml (merge (dict) . (dict "labelSelector" $selector)) | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/*
The security context of pods, as YAML. Without fixed users, the cluster chooses them: the chart's own ids are left out. Another id
is the user's wish, and stays.
*/}}
{{- define "operators.podSecurityContext" -}}
{{- $context := default dict .Values.podSecurityContext -}}
{{- if not .Values.fixedUserIds -}}
{{- $defaults := (.Files.Get "files/defaults.yaml" | fromYaml).values.podSecurityContext -}}
{{- range $key := list "runAsUser" "runAsGroup" "fsGroup" -}}
{{- if eq (int64 (get $context $key)) (int64 (get $defaults $key)) }}{{ $context = omit $context $key }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{/* The fields of all Services. */}}
{{- define "operators.serviceFields" -}}
{{- with .Values.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
