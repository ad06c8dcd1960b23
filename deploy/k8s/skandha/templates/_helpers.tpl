{{- define "skandha.labels" -}}
app.kubernetes.io/name: skandha
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The labels that select the pods of a component: (list $ "core"). */}}
{{- define "skandha.selector" -}}
app.kubernetes.io/name: skandha
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "skandha.name" -}}
{{ printf "%s-%s" (index . 0).Release.Name (index . 1) }}
{{- end }}

{{/* The image of NATS or Redis. */}}
{{- define "skandha.foreignImage" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}

{{/* Every pod is restricted, in the words of the Pod Security Standards. */}}
{{- define "skandha.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
serviceAccountName: {{ .Release.Name }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "skandha.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* There is no limit of CPU: throttling delays heartbeats. */}}
{{- define "skandha.resources" -}}
requests: {{- toYaml .requests | nindent 2 }}
limits: {memory: {{ .memoryMiB }}Mi}
{{- end }}

{{/* Pods of a component on different nodes: (list $ "core" "ScheduleAnyway"). */}}
{{- define "skandha.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ index . 2 }}
    labelSelector:
      matchLabels: {{- include "skandha.selector" (list (index . 0) (index . 1)) | nindent 8 }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "skandha.selector" (list (index . 0) (index . 1)) | nindent 8 }}
{{- end }}

{{- define "skandha.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* One pod at a time may be evicted. One that is not ready is no reason to keep a node. */}}
{{- define "skandha.pdb" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "skandha.name" . }}
  labels: {{- include "skandha.labels" (index . 0) | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "skandha.selector" . | nindent 6 }}
{{- end }}

{{- define "skandha.natsURL" -}}
{{- if .Values.nats.enabled -}}
{{ ternary "tls" "nats" (ne .Values.nats.tlsSecret "") }}://{{ .Release.Name }}-nats:4222
{{- else -}}
{{ required "nats.external.url: where the bus is, or enable nats" .Values.nats.external.url }}
{{- end -}}
{{- end }}

{{/* The Secret whose ca.crt verifies the bus, or nothing. */}}
{{- define "skandha.caSecret" -}}
{{ ternary .Values.nats.tlsSecret .Values.nats.external.caSecret .Values.nats.enabled }}
{{- end }}

{{- define "skandha.redisURL" -}}
{{- if .Values.redis.enabled -}}
{{- $peers := printf "%s-redis-peers" .Release.Name -}}
redis://:$(SKANDHA_REDIS_PASSWORD)@{{ .Release.Name }}-redis-0.{{ $peers }}:26379/0?master_name=skandha
{{- range list 1 2 }}&addr={{ $.Release.Name }}-redis-{{ . }}.{{ $peers }}:26379{{ end }}
{{- else -}}
{{ required "redis.external.url: where the view is, or enable redis" .Values.redis.external.url }}
{{- end -}}
{{- end }}

{{- define "skandha.uiURL" -}}
{{- if .Values.uibridge.url -}}
{{ .Values.uibridge.url }}
{{- else if .Values.uibridge.ingress.enabled -}}
https://{{ required "uibridge.ingress.host: the page's host name" .Values.uibridge.ingress.host }}
{{- end -}}
{{- end }}

{{/* What several pods can mount only with ReadWriteMany: (list $ "toolrunner"). Prints "shared" or nothing. */}}
{{- define "skandha.shared" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $c := index $root.Values $name -}}
{{- $most := int $c.replicas -}}
{{- if $c.autoscaling -}}{{- if ne $c.autoscaling.kind "none" -}}{{- $most = int $c.autoscaling.max -}}{{- end -}}{{- end -}}
{{- if eq $c.storage.accessMode "ReadWriteMany" -}}shared
{{- else if gt $most 1 -}}
{{- fail (printf "%s: several pods share its volume, so %s.storage.accessMode must be ReadWriteMany (now %s)" $name $name $c.storage.accessMode) -}}
{{- end -}}
{{- end }}

{{/* A service of Skandha. Keys: root, name, key (its file of secrets.bus; default name.key), env, volumes, mounts
     (lists as YAML text), ports, recreate, pause (seconds before it stops, so that clients go elsewhere). */}}
{{- define "skandha.deployment" -}}
{{- $root := .root -}}{{- $c := index $root.Values .name -}}{{- $ca := include "skandha.caSecret" $root -}}
{{- $scaled := false -}}{{- if $c.autoscaling -}}{{- $scaled = ne $c.autoscaling.kind "none" -}}{{- end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "skandha.name" (list $root .name) }}
  labels: {{- include "skandha.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  {{- if not $scaled }}
  replicas: {{ .replicas | default 1 }}
  {{- end }}
  revisionHistoryLimit: 5
  # A new pod takes work before an old one drains, but for pods with a volume that one node can mount.
  {{- if .recreate }}
  strategy: {type: Recreate}
  {{- else }}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  {{- end }}
  selector:
    matchLabels: {{- include "skandha.selector" (list $root .name) | nindent 6 }}
  template:
    metadata:
      labels: {{- include "skandha.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .name }}
      annotations:
        checksum/config: {{ toYaml (dict "core" $root.Values.core.config "listener" $root.Values.listener.config "ui" $root.Values.uibridge) | sha256sum }}
        {{- with $c.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "skandha.podSecurity" $root | nindent 6 }}
      {{- include "skandha.spread" (list $root .name "ScheduleAnyway") | nindent 6 }}
      {{- with include "skandha.placement" $c }}
      {{- . | nindent 6 }}
      {{- end }}
      # The drain, the pause before it, and time to disconnect.
      terminationGracePeriodSeconds: {{ add $c.drainSeconds (.pause | default 0) 15 }}
      containers:
        - name: {{ .name }}
          image: {{ $root.Values.image.repository }}/{{ .name }}{{ if $c.digest }}@{{ $c.digest }}{{ else }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}{{ end }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          {{- include "skandha.containerSecurity" $root | nindent 10 }}
          resources: {{- include "skandha.resources" $c | nindent 12 }}
          env:
            - {name: SKANDHA_NATS, value: {{ include "skandha.natsURL" $root | quote }}}
            - {name: SKANDHA_KEY, value: /run/secrets/skandha/key}
            - {name: SKANDHA_HTTP, value: ":8080"}
            - {name: SKANDHA_LOG, value: {{ $root.Values.logLevel }}}
            - {name: SKANDHA_LOG_FORMAT, value: {{ $root.Values.logFormat }}}
            - {name: SKANDHA_DRAIN, value: {{ $c.drainSeconds }}s}
            - {name: GOMEMLIMIT, value: {{ div (mul $c.memoryMiB 85) 100 }}MiB}
            {{- if $ca }}
            - {name: SKANDHA_TLS_CA, value: /run/secrets/bus-ca/ca.crt}
            {{- end }}
            {{- with .env }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- with concat $root.Values.env $c.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with $c.envFrom }}
          envFrom: {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            - {name: health, containerPort: 8080}
            {{- with .ports }}
            {{- . | nindent 12 }}
            {{- end }}
          # It listens once it is on the bus.
          startupProbe: {httpGet: {path: /healthz, port: health}, periodSeconds: 2, timeoutSeconds: 3, failureThreshold: 60}
          readinessProbe: {httpGet: {path: /readyz, port: health}, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 3}
          # Whether the process answers at all; a lost bus is no reason to restart it.
          livenessProbe: {httpGet: {path: /healthz, port: health}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
          {{- if .pause }}
          lifecycle: {preStop: {sleep: {seconds: {{ .pause }}}}}
          {{- end }}
          volumeMounts:
            - {name: secrets, mountPath: /run/secrets/skandha, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            {{- if $ca }}
            - {name: bus-ca, mountPath: /run/secrets/bus-ca, readOnly: true}
            {{- end }}
            {{- with .mounts }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- with $c.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        # Whole directories are mounted, so that a rotated key arrives.
        - name: secrets
          secret:
            secretName: {{ $root.Values.secrets.bus }}
            defaultMode: 0440
            items:
              - {key: {{ .name }}.key, path: key}
              {{- if eq .name "core" }}
              - {key: keys.json, path: keys.json}
              {{- end }}
        - name: tmp
          emptyDir: {sizeLimit: 64Mi}
        {{- if $ca }}
        - name: bus-ca
          secret: {secretName: {{ $ca }}, defaultMode: 0440, items: [{key: ca.crt, path: ca.crt}]}
        {{- end }}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with $c.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}

{{/* A volume of a service, unless it is one that exists: (list $ "toolrunner" "ReadWriteOnce"). */}}
{{- define "skandha.claim" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $s := (index $root.Values $name).storage -}}
{{- if not $s.existingClaim }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ include "skandha.name" (list $root $name) }}
  labels: {{- include "skandha.labels" $root | nindent 4 }}
  # helm uninstall leaves it.
  annotations: {helm.sh/resource-policy: keep}
spec:
  accessModes: [{{ index . 2 }}]
  {{- with $s.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources: {requests: {storage: {{ $s.size }}}}
{{- end }}
{{- end }}

{{- define "skandha.claimVolume" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}
- name: data
  persistentVolumeClaim:
    claimName: {{ (index $root.Values $name).storage.existingClaim | default (include "skandha.name" (list $root $name)) }}
{{- end }}

{{/* An Ingress of a service with TLS: (list $ "uibridge" ingress port). */}}
{{- define "skandha.ingress" -}}
{{- $root := index . 0 -}}{{- $name := include "skandha.name" (list $root (index . 1)) -}}{{- $i := index . 2 -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ $name }}
  labels: {{- include "skandha.labels" $root | nindent 4 }}
  {{- with $i.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with $i.className }}
  ingressClassName: {{ . }}
  {{- end }}
  tls:
    - hosts: [{{ $i.host }}]
      secretName: {{ required (printf "%s: an Ingress needs a tlsSecret: logins and tokens pass it" (index . 1)) $i.tlsSecret }}
  rules:
    - host: {{ required (printf "%s: an Ingress needs a host" (index . 1)) $i.host }}
      http:
        paths:
          - path: /
            pathType: Prefix
            backend: {service: {name: {{ $name }}, port: {name: http}}}
{{- end }}

{{/* How a Deployment scales: (list $ "provider"). Names of metrics are those of core's /metrics. */}}
{{- define "skandha.autoscaler" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $a := (index $root.Values $name).autoscaling -}}
{{- if and (eq $a.kind "keda") (gt (int $a.busy) (int (index $root.Values $name).slots)) -}}
{{- fail (printf "%s.autoscaling.busy: %d slots in use are more than a pod has (%s.slots: %d)" $name (int $a.busy) $name (int (index $root.Values $name).slots)) -}}
{{- end -}}
{{- if gt (int $a.min) (int $a.max) -}}
{{- fail (printf "%s.autoscaling: min is larger than max" $name) -}}
{{- end -}}
{{- if eq $a.kind "cpu" }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "skandha.name" . }}
  labels: {{- include "skandha.labels" $root | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ include "skandha.name" . }}}
  minReplicas: {{ $a.min }}
  maxReplicas: {{ $a.max }}
  metrics:
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ $a.cpu }}}}
  behavior:
    scaleDown: {stabilizationWindowSeconds: {{ $a.cooldownSeconds }}}
{{- else if eq $a.kind "keda" }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ include "skandha.name" . }}
  labels: {{- include "skandha.labels" $root | nindent 4 }}
spec:
  scaleTargetRef: {name: {{ include "skandha.name" . }}}
  minReplicaCount: {{ $a.min }}
  maxReplicaCount: {{ $a.max }}
  cooldownPeriod: {{ $a.cooldownSeconds }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleDown: {stabilizationWindowSeconds: {{ $a.cooldownSeconds }}}
  triggers:
    {{- if $a.prometheus }}
    {{- $of := printf "{namespace=%q}" $root.Release.Namespace }}
    {{- $busy := printf "max(skandha_%s_slots_busy%s)" $name $of }}
    # The slots in use and, when none is free, the sessions that wait in all cores.
    - type: prometheus
      metricType: AverageValue
      metadata:
        serverAddress: {{ $a.prometheus | quote }}
        query: {{ printf "%s + ((sum(skandha_queued_sessions%s) and on() (%s >= max(skandha_%s_slots%s))) or vector(0))" $busy $of $busy $name $of | quote }}
        threshold: {{ $a.busy | quote }}
    {{- else }}
    - type: metrics-api
      metricType: AverageValue
      metadata:
        url: http://{{ include "skandha.name" (list $root "core") }}.{{ $root.Release.Namespace }}.svc:8080/metrics
        format: prometheus
        valueLocation: skandha_{{ $name }}_slots_busy
        targetValue: {{ $a.busy | quote }}
    {{- end }}
{{- end }}
{{- end }}

{{- define "skandha.natsTLS" -}}
tls {
  cert_file: "/etc/nats-tls/tls.crt"
  key_file: "/etc/nats-tls/tls.key"
  {{- if . }}
  ca_file: "/etc/nats-tls/ca.crt"
  verify: true
  {{- end }}
  min_version: "1.2"
  timeout: 5
}
{{- end }}

{{- define "skandha.redisContainer" }}
image: {{ include "skandha.foreignImage" .Values.redis.image }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{ include "skandha.containerSecurity" . }}
env:
  - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: SELF, value: $(POD).{{ .Release.Name }}-redis-peers}
  - {name: PEERS, value: {{ range list 0 1 2 }}{{ if . }} {{ end }}{{ $.Release.Name }}-redis-{{ . }}.{{ $.Release.Name }}-redis-peers{{ end }}}
  - {name: STATE, value: /state}
  - {name: MAXMEMORY, value: {{ div (mul .Values.redis.memoryMiB 3) 4 }}mb}
  - {name: REDISCLI_AUTH, valueFrom: {secretKeyRef: {name: {{ .Values.secrets.passwords }}, key: redis}}}
{{- end }}

{{- define "skandha.policy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "skandha.name" . }}
  labels: {{- include "skandha.labels" (index . 0) | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "skandha.selector" . | nindent 6 }}
{{- end }}

{{- define "skandha.peer" -}}
- podSelector:
    matchLabels: {{- include "skandha.selector" . | nindent 6 }}
{{- end }}

{{- define "skandha.configMount" -}}
- {name: config, mountPath: /etc/skandha, readOnly: true}
{{- end }}

{{- define "skandha.configVolume" -}}
- name: config
  configMap: {name: {{ (index . 0).Release.Name }}-config, items: [{key: {{ index . 1 }}, path: {{ index . 1 }}}]}
{{- end }}

{{- define "skandha.core.env" }}
- {name: SKANDHA_CONFIG, value: /etc/skandha/core.yaml}
- {name: SKANDHA_BUS_KEYS, value: /run/secrets/skandha/keys.json}
- {name: SKANDHA_STREAM_REPLICAS, value: {{ ternary .Values.nats.replicas .Values.nats.external.streamReplicas .Values.nats.enabled | quote }}}
{{- if contains "$(SKANDHA_REDIS_PASSWORD)" (include "skandha.redisURL" .) }}
- name: SKANDHA_REDIS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .Values.secrets.passwords }}, key: redis}}
{{- end }}
- {name: SKANDHA_STORE, value: {{ include "skandha.redisURL" . | quote }}}
{{- end }}

{{- define "skandha.provider.env" }}
- {name: SKANDHA_CONFIG, value: /etc/skandha/core.yaml} # its section providers
- {name: SKANDHA_SLOTS, value: {{ .Values.provider.slots | quote }}}
{{- end }}

{{- define "skandha.toolrunner.env" }}
- {name: SKANDHA_CONFIG, value: /etc/skandha/listener.yaml} # its e-mail accounts and brokers
- {name: SKANDHA_SLOTS, value: {{ .Values.toolrunner.slots | quote }}}
- {name: SKANDHA_WORKSPACE, value: /data/workspace}
- {name: SKANDHA_STATE_DIR, value: /data/state}
{{- end }}

{{- define "skandha.listener.env" }}
- {name: SKANDHA_CONFIG, value: /etc/skandha/listener.yaml}
- {name: SKANDHA_STATE_DIR, value: /data}
{{- end }}

{{- define "skandha.uibridge.env" }}
- {name: SKANDHA_CONFIG, value: /etc/skandha/ui.yaml}
- {name: SKANDHA_UI_LISTEN, value: "0.0.0.0:7070"}
- {name: SKANDHA_UI_DATA, value: /data} # logouts and passkeys
- name: SKANDHA_UI_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .Values.secrets.passwords }}, key: ui-token}}
{{- with include "skandha.uiURL" . }}
- {name: SKANDHA_UI_URL, value: {{ . | quote }}}
{{- else }}
- {name: SKANDHA_UI_PORT, value: "7070"} # by kubectl port-forward
{{- end }}
{{- end }}
