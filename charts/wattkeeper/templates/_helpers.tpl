{{/* Beginning of the names of all objects: at most 40 characters, so that endings fit into 63. */}}
{{- define "wattkeeper.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "wattkeeper.operator.fullname" -}}
{{- include "wattkeeper.fullname" . }}-operator
{{- end -}}

{{- define "wattkeeper.operator.serviceAccountName" -}}
{{- $own := ternary (include "wattkeeper.operator.fullname" .) "default" .Values.serviceAccount.create -}}
{{- default $own .Values.serviceAccount.name -}}
{{- end -}}

{{- define "wattkeeper.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "wattkeeper.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: wattkeeper
{{- end -}}

{{/* What never changes between versions, for a Deployment's selector is immutable. */}}
{{- define "wattkeeper.operator.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "wattkeeper.operator.labels" -}}
{{ include "wattkeeper.operator.selectorLabels" . }}
{{ include "wattkeeper.labels" . }}
{{- end -}}
