{{- define "justitia.name" -}}
{{- if contains "justitia" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-justitia{{ end }}
{{- end }}

{{- /* These labels never change in a release. */ -}}
{{- define "justitia.selector" -}}
app.kubernetes.io/name: justitia
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "justitia.labels" -}}
{{ include "justitia.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "justitia.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "justitia.config" -}}
{{- with regexFind "(?m)^[ \t]*(mode|observer|listen|tls|state_dir|socket)[ \t]*=" .Values.config -}}
{{- $key := trim (trimSuffix "=" .) -}}
{{- if has $key (list "mode" "observer") -}}
{{- fail (printf "config: the key %s is a value of the chart; set %s instead" $key $key) -}}
{{- else -}}
{{- fail (printf "config: the key %s is the chart's to set; remove it (metrics.address and metrics.port set the page's address, metrics.tls its TLS)" $key) -}}
{{- end -}}
{{- end -}}
mode = {{ .Values.mode | quote }}
observer = {{ .Values.observer | quote }}
# The second container serves the page.
listen = "off"
{{- if and .Values.metrics.enabled .Values.metrics.tls.secretName }}
tls = { certificate = "/etc/justitia-tls/tls.crt", key = "/etc/justitia-tls/tls.key" }
{{- end }}
{{ .Values.config }}
{{- end }}
