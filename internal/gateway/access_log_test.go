package gateway_test

import (
	"crypto/tls"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	model "fairlead/internal/model/gateway"
	"fairlead/test/place"
)

// logWorld is a gateway that writes an access log.
type logWorld struct {
	*world
	path string
}

func newLogWorld(t *testing.T, settings model.AccessLog, entry model.EntryPoint) logWorld {
	t.Helper()
	settings.FilePath = filepath.Join(t.TempDir(), "access.log")
	entry.Name, entry.Address = "web", "127.0.0.1:0"
	return logWorld{newWorld(t, model.Static{AccessLog: &settings, EntryPoints: []model.EntryPoint{entry}}),
		settings.FilePath}
}

// lines waits until the log has n lines, and returns them.
func (w logWorld) lines(n int) []string {
	w.t.Helper()
	deadline := time.Now().Add(place.Timeout)
	for {
		text, err := os.ReadFile(w.path)
		if err != nil {
			w.t.Fatal(err)
		}
		if lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"); len(text) > 0 && len(lines) == n {
			return lines
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the log has not %d lines:\n%s", n, text)
		}
		time.Sleep(time.Millisecond)
	}
}

// object returns the only line as an object.
func (w logWorld) object() map[string]any {
	w.t.Helper()
	var o map[string]any
	if line := w.lines(1)[0]; json.Unmarshal([]byte(line), &o) != nil {
		w.t.Fatalf("no JSON: %s", line)
	}
	return o
}

// all keeps the headers that the common form has.
var all = &model.LogFields{Headers: &model.LogHeaders{DefaultMode: "keep"}}

// TestCommonLog compares lines with Traefik's documented ones.
func TestCommonLog(t *testing.T) {
	const request = `"GET /x\?q=%22 HTTP/1\.1" 200 5 `
	const added = ` 1 "r@file" "http://127\.0\.0\.1:\d+" \d+ms`
	utc := `\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\] `
	for name, s := range map[string]struct {
		format string
		fields *model.LogFields
		want   string
	}{
		"default":      {"", nil, `127\.0\.0\.1 - ann ` + utc + request + `"-" "-"` + added},
		"headers":      {"common", all, `127\.0\.0\.1 - ann ` + utc + request + `"-" "agent \\"x"` + added},
		"generic":      {"genericCLF", all, `127\.0\.0\.1 - ann ` + utc + request + `"-" "agent \\"x"`},
		"redacted":     {"genericCLF", headers("User-Agent", "redact"), `127.* ` + request + `"-" "REDACTED"`},
		"without user": {"", names("clientusername", "drop"), `127\.0\.0\.1 - - \[.*` + added},
		"without time": {"", &model.LogFields{Names: map[string]string{"StartUTC": "drop", "StartLocal": "drop"}},
			`127\.0\.0\.1 - ann \[-\] ` + request + `.*`},
		"without query": {"", &model.LogFields{QueryParameters: &model.LogQuery{DefaultMode: "drop"}},
			`127.* "GET /x HTTP/1\.1" 200 5 "-" "-"` + added},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLogWorld(t, model.AccessLog{Format: s.format, Fields: s.fields}, model.EntryPoint{})
			w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
				map[string]*model.Service{"s@file": server(t, named("hello"))})
			w.get("http://ann:pw@a.test/x?q=%22", "User-Agent", `agent "x`)
			w.get("http://b.test/")
			lines := w.lines(2)
			if !regexp.MustCompile("^"+s.want+"$").MatchString(lines[0]) || !strings.Contains(lines[1], `" 404 19 `) {
				t.Errorf("log:\n%s\nwant:\n%s", strings.Join(lines, "\n"), s.want)
			}
		})
	}
}

func headers(name, mode string) *model.LogFields {
	return &model.LogFields{Headers: &model.LogHeaders{Names: map[string]string{name: mode}}}
}

func names(name, mode string) *model.LogFields {
	return &model.LogFields{Names: map[string]string{name: mode}}
}

// always are the fields of each request in the JSON form.
const always = "ClientAddr ClientHost ClientPort ClientUsername DownstreamContentSize DownstreamStatus Duration " +
	"Overhead RequestAddr RequestContentSize RequestCount RequestHost RequestMethod RequestPath RequestPort " +
	"RequestProtocol RequestScheme RetryAttempts StartLocal StartUTC entryPointName level msg time "

// TestFieldsOfJSONLog checks the set of fields, and which of them the settings leave out.
func TestFieldsOfJSONLog(t *testing.T) {
	const routed = always + "RouterName OriginContentSize OriginDuration OriginStatus "
	const served = routed + "ServiceAddr ServiceName ServiceURL "
	const secure = "TLSCipher TLSClientSubject TLSVersion"
	for name, s := range map[string]struct {
		url    string
		fields *model.LogFields
		want   string
	}{
		"no router": {"http://b.test/", nil, always},
		"redirect":  {"http://redirected.test/", nil, routed},
		"server":    {"http://a.test/", nil, served},
		"TLS":       {"https://a.test/", nil, served + secure},
		"gzip":      {"http://zipped.test/", nil, served + "GzipRatio"},
		"dropped":   {"http://a.test/", drop("clienthost", "keep"), "ClientHost entryPointName level msg time"},
		"all headers": {"http://b.test/", all, always + "request_Accept-Encoding request_User-Agent " +
			"request_X-Real-Ip request_X-Forwarded-Host request_X-Forwarded-Port request_X-Forwarded-Proto " +
			"request_X-Forwarded-Server downstream_Content-Type downstream_X-Content-Type-Options"},
		"one header": {"http://a.test/", headers("x-own", "keep"), served + "origin_X-Own downstream_X-Own"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLogWorld(t, model.AccessLog{Format: "json", Fields: s.fields}, model.EntryPoint{})
			w.applyForLog(t)
			w.get(s.url, "User-Agent", "x", "Accept-Encoding", "gzip")
			want := strings.Fields(s.want)
			slices.Sort(want)
			if got := slices.Sorted(maps.Keys(w.object())); !slices.Equal(got, want) {
				t.Errorf("%s has\n%v, want\n%v", s.url, got, want)
			}
		})
	}
}

func drop(name, mode string) *model.LogFields {
	f := names(name, mode)
	f.DefaultMode = "drop"
	return f
}

// applyForLog adds routers to a server, to a redirection, and to a server with compression.
func (w logWorld) applyForLog(t *testing.T) {
	secure := certificate(t, "client.test")
	pair, err := tls.X509KeyPair([]byte(secure.CertFile), []byte(secure.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	w.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true,
		Certificates: []tls.Certificate{pair}}
	router := func(host, middleware string) *model.Router {
		r := &model.Router{Rule: "Host(`" + host + "`)", Service: "s@file"}
		if middleware != "" {
			r.Middlewares = []string{middleware}
		}
		return r
	}
	encrypted := router("a.test", "")
	encrypted.TLS = &model.RouterTLS{}
	w.gateway.Apply(&model.Config{
		TLS: model.TLS{Options: map[string]*model.TLSOptions{"default": {ClientAuth: model.ClientAuth{
			ClientAuthType: "RequireAnyClientCert"}}}},
		HTTP: model.HTTP{
			Routers: map[string]*model.Router{"r@file": router("a.test", ""), "secure@file": encrypted,
				"zipped@file": router("zipped.test", "zip@file"), "to@file": router("redirected.test", "to@file"),
				"page@file": router("page.test", "page@file")},
			Services: map[string]*model.Service{
				"s@file": server(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("X-Own", "secret")
					if r.URL.Path == "/broken" {
						w.WriteHeader(http.StatusInternalServerError)
					}
					_, _ = w.Write([]byte(strings.Repeat("hello", 1000)))
				}),
				"page@file": server(t, named("sorry"))},
			Middlewares: map[string]*model.Middleware{"zip@file": {Compress: &model.Compress{}},
				"to@file":   {RedirectScheme: &model.RedirectScheme{Scheme: "https"}},
				"page@file": {Errors: &model.Errors{Status: []string{"500"}, Service: "page@file", Query: "/"}}}}}, nil)
}

// TestValuesOfJSONLog checks the values of the fields.
func TestValuesOfJSONLog(t *testing.T) {
	fields := headers("X-Own", "redact")
	fields.Headers.Names["User-Agent"] = "keep"
	for url, want := range map[string]map[string]any{
		"http://ann:pw@a.test/x?q=%22": {"DownstreamStatus": 200.0, "OriginStatus": 200.0, "RouterName": "r@file",
			"ServiceName": "s@file", "RequestPath": "/x?q=%22", "entryPointName": "web", "ClientHost": "192.0.2.9",
			"ClientUsername": "ann", "DownstreamContentSize": 5000.0, "OriginContentSize": 5000.0, "RequestPort": "-",
			"RequestScheme": "http", "request_User-Agent": "x", "origin_X-Own": "REDACTED",
			"downstream_X-Own": "REDACTED", "RetryAttempts": 0.0},
		"https://A.test:444/": {"RequestScheme": "https", "RequestHost": "A.test", "RequestPort": "444",
			"RequestAddr": "A.test:444", "TLSVersion": "1.3", "TLSCipher": "TLS_AES_128_GCM_SHA256",
			"TLSClientSubject": "CN=client.test", "ClientUsername": "-"},
		"http://zipped.test/": {"OriginContentSize": 5000.0},
		"http://page.test/broken": {"OriginStatus": 200.0, "DownstreamStatus": 500.0, "ServiceName": "page@file",
			"DownstreamContentSize": 5.0},
	} {
		t.Run(url, func(t *testing.T) {
			w := newLogWorld(t, model.AccessLog{Format: "json", Fields: fields},
				model.EntryPoint{TrustedProxies: []string{"127.0.0.1"}})
			w.applyForLog(t)
			w.get(url, "User-Agent", "x", "Accept-Encoding", "gzip", "X-Forwarded-For", "192.0.2.9")
			got := w.object()
			for name, value := range want {
				if got[name] != value {
					t.Errorf("%s is %v, want %v", name, got[name], value)
				}
			}
		})
	}
}

// TestSchemeOfServersInLog checks the URL of servers with TLS and with HTTP/2.
func TestSchemeOfServersInLog(t *testing.T) {
	for _, scheme := range []string{"https", "h2c"} {
		w := newLogWorld(t, model.AccessLog{}, model.EntryPoint{})
		w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
			map[string]*model.Service{"s@file": serviceOf(scheme + "://127.0.0.1:1")})
		w.get("http://a.test/")
		if line := w.lines(1)[0]; !strings.Contains(line, `"`+scheme+`://127.0.0.1:1"`) {
			t.Errorf("%s server: %s", scheme, line)
		}
	}
}

// TestBufferedLogIsFlushed checks that a line is written soon although the buffer is not full.
func TestBufferedLogIsFlushed(t *testing.T) {
	w := newLogWorld(t, model.AccessLog{BufferingSize: 100}, model.EntryPoint{})
	for n := 1; n < 3; n++ {
		w.get("http://a.test/")
		w.lines(n)
	}
}
