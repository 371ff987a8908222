{{- define "dflockd.selector" -}}
app.kubernetes.io/name: dflockd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dflockd.labels" -}}
{{ include "dflockd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
