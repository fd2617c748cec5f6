{{/* The name of every object. 52 characters leave room for a suffix and for the names of a Job's pods. */}}
{{- define "integrity.fullname" -}}
{{- if contains "integrity" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}{{ printf "%s-integrity" (.Release.Name | trunc 42 | trimSuffix "-") }}
{{- end }}
{{- end }}

{{/* The labels of a selector: (list . COMPONENT) */}}
{{- define "integrity.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: integrity
app.kubernetes.io/instance: {{ $root.Release.Name | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "integrity.labels" -}}
{{- $root := index . 0 -}}
{{ include "integrity.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The variables of the program: (list . FILES), FILES being secret settings and their keys */}}
{{- define "integrity.environment" -}}
{{- $root := index . 0 -}}
{{- $v := $root.Values -}}
{{- $settings := dict
  "DRAIN_DELAY" "10s"
  "LOG_FORMAT" "json" -}}
{{- $settings = merge (dict
  "LISTEN" ":8080"
  "METRICS_LISTEN" ":18080"
  "BASE_URL" $v.baseURL
  "ISSUER" (default $v.baseURL $v.issuer)
  "DATA_DIR" "/var/lib/integrity"
  "TRUSTED_KEYS" (printf "/etc/integrity/%s" $v.secret.trustedKeys)) (deepCopy $v.settings) $settings -}}
{{- if $v.tlsSecret }}
{{- $settings = merge (dict "TLS_CERT" "/etc/integrity-tls/tls.crt" "TLS_KEY" "/etc/integrity-tls/tls.key") $settings }}
{{- end }}
{{- range $name, $value := $settings }}
- name: INTEGRITY_{{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- range $name, $key := index . 1 }}
- name: INTEGRITY_{{ $name }}_FILE
  value: {{ printf "/etc/integrity/%s" $key | quote }}
{{- end }}
{{- range $name, $value := $v.environment }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* The fields of every container: (list . FILES) */}}
{{- define "integrity.container" -}}
{{- $root := index . 0 -}}
{{- with $root.Values.image -}}
image: {{ if .digest }}{{ printf "%s@%s" .repository .digest | quote }}
  {{- else }}{{ printf "%s:%s" .repository (default $root.Chart.AppVersion .tag) | quote }}{{ end }}
imagePullPolicy: {{ .pullPolicy }}
{{- end }}
env:
  {{- include "integrity.environment" . | trim | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: secrets, mountPath: /etc/integrity, readOnly: true}
  {{- if $root.Values.tlsSecret }}
  - {name: tls, mountPath: /etc/integrity-tls, readOnly: true}
  {{- end }}
  - {name: data, mountPath: /var/lib/integrity}
  - {name: tmp, mountPath: /tmp}
{{- with get $root.Values "resources" }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
The fields of every pod, besides its containers: (list . DATA SECRET KEYS), DATA being the claim of the data directory, if
any, and KEYS the only keys of the Secret that the pod sees, if not all.
*/}}
{{- define "integrity.pod" -}}
{{- $v := (index . 0).Values -}}
automountServiceAccountToken: false
enableServiceLinks: false # they would be unknown INTEGRITY_ variables
{{- with $v.serviceAccount }}
serviceAccountName: {{ . }}
{{- end }}
{{- with $v.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: secrets
    secret:
      secretName: {{ index . 2 }}
      defaultMode: 0440
      {{- with index . 3 }}
      items:
        {{- range . }}
        - {key: {{ . }}, path: {{ . }}}
        {{- end }}
      {{- end }}
  {{- with $v.tlsSecret }}
  - name: tls
    secret:
      secretName: {{ . }}
      defaultMode: 0440
  {{- end }}
  - name: data
    {{- with index . 1 }}
    persistentVolumeClaim: {claimName: {{ . }}}
    {{- else }}
    emptyDir: {}
    {{- end }}
  - name: tmp # uploads in progress
    emptyDir: {sizeLimit: 4Gi}
{{- with $v.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
