{{/* What the pods of the pipeline have in common: the nightly job and the warm session. */}}

{{- define "routebook.pipelineImage" -}}
{{- default (printf "routebook-pipeline:%s" .Chart.AppVersion) .Values.pipeline.image -}}
{{- end }}

{{- define "routebook.pipelineEnv" -}}
- name: ROUTEBOOK_NAMESPACE
  value: {{ include "routebook.settingText" (.Values.settings.namespace | default "default") | quote }}
- name: ROUTEBOOK_LAKE
  value: {{ .Values.pipeline.lake.url | default "/lake" | quote }}
- name: XDG_CACHE_HOME
  value: /tmp/cache
{{ include "routebook.storeEnv" . }}
{{- with .Values.pipeline.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "routebook.pipelineMounts" -}}
- name: tmp
  mountPath: /tmp
- name: reports
  mountPath: /reports
{{- if not .Values.pipeline.lake.url }}
- name: lake
  mountPath: /lake
{{- end }}
{{- with .Values.pipeline.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "routebook.pipelineVolumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.pipeline.scratchSize | quote }}
- name: reports
  persistentVolumeClaim:
    claimName: {{ include "routebook.reportsClaim" . | quote }}
{{- if not .Values.pipeline.lake.url }}
- name: lake
  persistentVolumeClaim:
    claimName: {{ include "routebook.lakeClaim" . | quote }}
{{- end }}
{{- with .Values.pipeline.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "routebook.pipelinePlacement" -}}
{{- with .Values.pipeline.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pipeline.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
