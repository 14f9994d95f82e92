{{/* Names, labels and images that several templates use. */}}

{{- define "routebook.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/*
A release may be called 123, a.b, or have a name of 53 characters. But a Service's name must begin with a letter and have no dots, and a
CronJob's has at most 52 characters. A long name is cut and gets a hash of the whole, so that two long names with one prefix stay distinct.
*/}}
{{- define "routebook.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := include "routebook.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | replace "." "-" -}}
{{- if not (regexMatch "^[a-z]" $full) -}}
{{- $full = printf "rb-%s" $full -}}
{{- end -}}
{{- if gt (len $full) 40 -}}
{{- printf "%s-%s" ($full | trunc 31 | trimSuffix "-") (sha256sum $full | trunc 8) -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "routebook.adminTokenName" -}}
{{- printf "%s-admin-token" (include "routebook.fullname" .) -}}
{{- end }}

{{- define "routebook.storeName" -}}
{{- printf "%s-store" (include "routebook.fullname" .) -}}
{{- end }}

{{/*
Labels of one component. Call these with (dict "root" $ "component" "worker"), and "more" for labels of this object only.
The selector labels must never change: Kubernetes does not allow it in an existing Deployment or StatefulSet.
*/}}
{{- define "routebook.selectorLabels" -}}
app.kubernetes.io/name: {{ include "routebook.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end }}

{{- define "routebook.ownLabels" -}}
{{ include "routebook.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/part-of: routebook
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- end }}

{{- define "routebook.labels" -}}
{{ include "routebook.ownLabels" . }}
{{- include "routebook.userLabels" . }}
{{- end }}

{{/* commonLabels, and `more` for this object, which wins. requirements.yaml refuses the chart's own labels in either. */}}
{{- define "routebook.userLabels" -}}
{{- with mergeOverwrite dict (.root.Values.commonLabels | default dict) (.more | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Without version labels: a new chart version that changes nothing else must not restart any pod, least of all the store's. */}}
{{- define "routebook.podLabels" -}}
{{ include "routebook.selectorLabels" . }}
{{- include "routebook.userLabels" . }}
{{- end }}

{{- define "routebook.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end }}

{{- define "routebook.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "routebook.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{/* The beginning of every pod's spec. */}}
{{- define "routebook.podSpec" -}}
serviceAccountName: {{ include "routebook.serviceAccountName" . | quote }}
automountServiceAccountToken: false
# Service links would add ROUTEBOOK_* variables that look like settings.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end }}
