package accesslog

import (
	"net/http"
	"strings"

	"fairlead/internal/model/gateway"
)

// The modes of a field of the access log.
const (
	keepField   = "keep"
	dropField   = "drop"
	redactField = "redact"
	redacted    = "REDACTED"
)

// coreFields are the fields of the access log that are not headers.
var coreFields = [...]string{"ClientAddr", "ClientHost", "ClientPort", "ClientUsername", "DownstreamContentSize",
	"DownstreamStatus", "Duration", "GzipRatio", "OriginContentSize", "OriginDuration", "OriginStatus", "Overhead",
	"RequestAddr", "RequestContentSize", "RequestCount", "RequestHost", "RequestMethod", "RequestPath", "RequestPort",
	"RequestProtocol", "RequestScheme", "RetryAttempts", "RouterName", "ServiceAddr", "ServiceName", "ServiceURL",
	"StartLocal", "StartUTC", "TLSCipher", "TLSClientSubject", "TLSVersion"}

// fields says what the access log has of a request.
type fields struct {
	dropped map[string]bool
	// headers has the modes by canonical name, header is the mode of others.
	headers map[string]string
	header  string
	// hasHeaders: a header may be kept or redacted.
	hasHeaders bool
	// noQuery leaves the query out of the path.
	noQuery bool
}

// newFields returns the fields with Traefik's defaults: all but headers. Names ignore case.
func newFields(value *gateway.LogFields) fields {
	f := fields{dropped: map[string]bool{}, headers: map[string]string{}, header: dropField}
	if value == nil {
		return f
	}
	modes := map[string]string{}
	for name, mode := range value.Names {
		modes[strings.ToLower(name)] = mode
	}
	for _, name := range coreFields {
		mode := modes[strings.ToLower(name)]
		f.dropped[name] = mode == dropField || mode != keepField && value.DefaultMode == dropField
	}
	if h := value.Headers; h != nil {
		f.header = modeOf(h.DefaultMode, dropField)
		for name, mode := range h.Names {
			f.headers[http.CanonicalHeaderKey(name)] = modeOf(mode, f.header)
		}
	}
	f.hasHeaders = f.header != dropField
	for _, mode := range f.headers {
		f.hasHeaders = f.hasHeaders || mode != dropField
	}
	f.noQuery = value.QueryParameters != nil && value.QueryParameters.DefaultMode == dropField
	return f
}

func modeOf(mode, otherwise string) string {
	switch mode {
	case keepField, dropField, redactField:
		return mode
	}
	return otherwise
}

// modeOfHeader returns the mode of a header with a canonical name.
func (f *fields) modeOfHeader(name string) string {
	if mode, ok := f.headers[name]; ok {
		return mode
	}
	return f.header
}

// valueOf returns the text of a header for the log, empty if it is dropped or absent.
func (f *fields) valueOf(h http.Header, name string) string {
	if len(h[name]) == 0 {
		return ""
	}
	switch f.modeOfHeader(name) {
	case keepField:
		return strings.Join(h[name], ",")
	case redactField:
		return redacted
	}
	return ""
}

// add adds the headers that the log has, with a prefix before their names.
func (f *fields) add(to map[string]any, prefix string, h http.Header) {
	if !f.hasHeaders {
		return
	}
	for name := range h {
		if value := f.valueOf(h, name); value != "" {
			to[prefix+name] = value
		}
	}
}

// pathOf returns the target of the request as the log has it.
func (f *fields) pathOf(target string) string {
	if f.noQuery {
		target, _, _ = strings.Cut(target, "?")
	}
	return target
}
