{{/*
Whether to create an object of the Prometheus operator: "yes" or nothing. A cluster without the operator does not have these kinds and
would refuse the whole release, so `auto` checks for them. Without access to a cluster there are none, unless --api-versions names them.
*/}}

{{- define "routebook.operatorObject" -}}
{{- if kindIs "bool" .wanted -}}
{{- ternary "yes" "" .wanted -}}
{{- else if .root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind) -}}
yes
{{- end -}}
{{- end }}

{{- define "routebook.podMonitor" -}}
{{- if not (and .Values.metrics.serviceMonitor.enabled (not (kindIs "bool" .Values.metrics.podMonitor.enabled))) -}}
{{- include "routebook.operatorObject" (dict "root" . "kind" "PodMonitor" "wanted" .Values.metrics.podMonitor.enabled) -}}
{{- end -}}
{{- end }}

{{- define "routebook.prometheusRule" -}}
{{- include "routebook.operatorObject" (dict "root" . "kind" "PrometheusRule" "wanted" .Values.metrics.prometheusRule.enabled) -}}
{{- end }}
