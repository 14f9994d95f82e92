{{/*
Which objects of the Prometheus operator are made: "yes" or nothing. A cluster without the operator does not know their kinds and would
refuse the whole release, so `auto` asks what it knows. A rendering without a cluster knows none (--api-versions names some).
*/}}

{{- define "routebook.knownAndWanted" -}}
{{- if kindIs "bool" .wanted -}}
{{- ternary "yes" "" .wanted -}}
{{- else if .root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind) -}}
yes
{{- end -}}
{{- end }}

{{- define "routebook.podMonitor" -}}
{{- if not (and .Values.metrics.serviceMonitor.enabled (not (kindIs "bool" .Values.metrics.podMonitor.enabled))) -}}
{{- include "routebook.knownAndWanted" (dict "root" . "kind" "PodMonitor" "wanted" .Values.metrics.podMonitor.enabled) -}}
{{- end -}}
{{- end }}

{{- define "routebook.prometheusRule" -}}
{{- include "routebook.knownAndWanted" (dict "root" . "kind" "PrometheusRule" "wanted" .Values.metrics.prometheusRule.enabled) -}}
{{- end }}
