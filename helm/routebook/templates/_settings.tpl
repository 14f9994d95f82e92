{{/* Turns values into Routebook's settings. */}}

{{/* Helm reads numbers of values.yaml as floats, so 33554432 would be written as 3.3554432e+07. */}}
{{- define "routebook.settingText" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . | toString -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end }}

{{/* The environment variables of all workers, as YAML. */}}
{{- define "routebook.settings" -}}
{{- $all := dict -}}
{{- range $name, $value := .Values.settings -}}
{{- $_ := set $all (printf "ROUTEBOOK_%s" (upper $name)) (include "routebook.settingText" $value) -}}
{{- end -}}
{{- $service := include "routebook.fullname" . -}}
{{- $names := list $service (printf "%s.%s" $service .Release.Namespace) (printf "%s.%s.svc" $service .Release.Namespace) -}}
{{- $names = append $names (printf "%s.%s.svc.cluster.local" $service .Release.Namespace) -}}
{{- with .Values.settings.http_host_names -}}
{{- $names = append $names . -}}
{{- end -}}
{{- $_ := set $all "ROUTEBOOK_HTTP_HOST_NAMES" (join "," $names) -}}
{{- $_ := set $all "ROUTEBOOK_ADMIN_HOST" .Values.admin.host -}}
{{- $_ := set $all "ROUTEBOOK_ADMIN_PORT" (.Values.admin.port | int | toString) -}}
{{- $_ := set $all "ROUTEBOOK_DRAIN_MS" (mul (.Values.drain.seconds | int) 1000 | toString) -}}
{{- $_ := set $all "ROUTEBOOK_TLS_MODE" .Values.tls.mode -}}
{{- if .Values.tls.existingSecret -}}
{{- $_ := set $all "ROUTEBOOK_TLS_TEST_MODE" "false" -}}
{{- $_ := set $all "ROUTEBOOK_TLS_KEY_PATH" "/etc/routebook/tls/tls.key" -}}
{{- $_ := set $all "ROUTEBOOK_TLS_CERT_PATH" "/etc/routebook/tls/tls.crt" -}}
{{- end -}}
{{- if ne .Values.tls.clientAuth "none" -}}
{{- $_ := set $all "ROUTEBOOK_TLS_NEED_CLIENT_AUTH" .Values.tls.clientAuth -}}
{{- $_ := set $all "ROUTEBOOK_TLS_AUTH_CLIENT" "true" -}}
{{- $_ := set $all "ROUTEBOOK_TLS_TRUST_PATH" "/etc/routebook/trust/ca.crt" -}}
{{- end -}}
{{- if and .Values.pipeline.enabled .Values.pipeline.reports.serve -}}
{{- $_ := set $all "ROUTEBOOK_REPORTS_DIR" "/reports" -}}
{{- end -}}
{{- toYaml $all -}}
{{- end }}

{{/* The store's URL, an environment variable of workers and pipeline. It may contain a password, so it is never in a ConfigMap. */}}
{{- define "routebook.storeEnv" -}}
{{- $builtin := .Values.store.builtin -}}
{{- if and $builtin.enabled $builtin.passwordSecret -}}
- name: STORE_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ $builtin.passwordSecret | quote }}
      key: password
- name: ROUTEBOOK_REDIS_URL
  value: {{ printf "redis://:$(STORE_PASSWORD)@%s:6379" (include "routebook.storeName" .) | quote }}
{{- else if $builtin.enabled -}}
- name: ROUTEBOOK_REDIS_URL
  value: {{ printf "redis://%s:6379" (include "routebook.storeName" .) | quote }}
{{- else -}}
- name: ROUTEBOOK_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ default (include "routebook.storeName" .) .Values.store.external.existingSecret | quote }}
      key: url
{{- end }}
{{- end }}

{{/* The longest regular stop: the two drain periods, and 20 s to close remaining connections and release the lease. */}}
{{- define "routebook.neededGrace" -}}
{{- add (int .Values.drain.preStopSeconds) (int .Values.drain.seconds) 20 -}}
{{- end }}

{{- define "routebook.gracePeriod" -}}
{{- default (include "routebook.neededGrace" .) (.Values.drain.terminationGracePeriodSeconds | int) -}}
{{- end }}
