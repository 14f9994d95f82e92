{{/* Names, labels and images. Each has its one home here. */}}

{{- define "routebook.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/*
A Service's name begins with a letter and has no dots, a CronJob's has at most 52 letters; a release may be called 123, a.b, or something
of 53 letters. Two long names that begin alike must not become one: what is cut off leaves its hash behind.
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

{{- define "routebook.storeName" -}}
{{- printf "%s-store" (include "routebook.fullname" .) -}}
{{- end }}

{{/* Of one component: call these with (dict "root" $ "component" "worker"), and "more" for labels of this object only. What a selector holds never changes. */}}
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
{{- include "routebook.labelsOfUsers" . }}
{{- end }}

{{/* Those for all objects, and `more` for this one, which is stronger. The chart's own are refused there (requirements.yaml). */}}
{{- define "routebook.labelsOfUsers" -}}
{{- with mergeOverwrite dict (.root.Values.commonLabels | default dict) (.more | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Without versions: a release of the chart that changes nothing else must not restart anything, the store least of all. */}}
{{- define "routebook.podLabels" -}}
{{ include "routebook.selectorLabels" . }}
{{- include "routebook.labelsOfUsers" . }}
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

{{/* What all pods begin with. */}}
{{- define "routebook.podSpec" -}}
serviceAccountName: {{ include "routebook.serviceAccountName" . | quote }}
automountServiceAccountToken: false
# The variables of Services would be ROUTEBOOK_*, too.
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
