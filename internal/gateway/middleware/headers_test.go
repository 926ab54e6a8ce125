package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

func TestHeadersCustom(t *testing.T) {
	value := gateway.Headers{
		CustomRequestHeaders:  map[string]string{"x-set": "1", "X-Delete": "", "Host": "backend", "X-Forwarded-For": ""},
		CustomResponseHeaders: map[string]string{"X-Out": "2", "Server": ""},
		FrameDeny:             true, CustomBrowserXSSValue: "0",
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "leaky")
		w.Header().Set("X-Frame-Options", "ALLOWALL")
		w.WriteHeader(http.StatusEarlyHints)
		echo("X-Set", "X_Set", "X-Delete", "X_delete", "Host", "X-Forwarded-For").ServeHTTP(w, r)
	})
	out := map[string]string{"X-Out": "2", "Server": "", "X-Frame-Options": "DENY", "X-Xss-Protection": "0"}
	run(t, gateway.Middleware{Headers: &value}, handler, []request{
		{name: "set and delete", wantHeader: out,
			want: "GET / X-Set=1 X_Set= X-Delete= X_delete= Host=backend X-Forwarded-For=",
			header: map[string]string{"X-Delete": "a", "X_delete": "a", "X-Set": "9", "X_Set": "9",
				"X-Forwarded-For": "192.0.2.1"}},
	})
}

// TestHeadersWithoutBody checks the headers of a response that the handler leaves to the
// server.
func TestHeadersWithoutBody(t *testing.T) {
	value := gateway.Headers{CustomResponseHeaders: map[string]string{"X-Out": "2"}}
	run(t, gateway.Middleware{Headers: &value}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		[]request{{name: "nothing written", wantHeader: map[string]string{"X-Out": "2"}}})
}

func TestHeadersCORS(t *testing.T) {
	asks := func(origin string) map[string]string {
		return map[string]string{"Origin": origin, "Access-Control-Request-Method": "PUT",
			"Access-Control-Request-Headers": "X-A"}
	}
	value := gateway.Headers{
		AccessControlAllowOriginList:      []string{"https://a.example"},
		AccessControlAllowOriginListRegex: []string{`^https://[a-z]+\.b\.example$`},
		AccessControlAllowMethods:         []string{"GET", "PUT"}, AccessControlAllowHeaders: []string{"*"},
		AccessControlAllowCredentials: true, AccessControlMaxAge: 100, AddVaryHeader: true,
		AccessControlExposeHeaders: []string{"X-B"},
	}
	run(t, gateway.Middleware{Headers: &value}, echo(), []request{
		{name: "preflight", method: "OPTIONS", header: asks("https://a.example"), wantHeader: map[string]string{
			"Access-Control-Allow-Origin": "https://a.example", "Access-Control-Allow-Methods": "GET,PUT",
			"Access-Control-Allow-Headers": "X-A", "Access-Control-Allow-Credentials": "true",
			"Access-Control-Max-Age": "100", "Vary": "Origin", "Content-Length": "0"}},
		{name: "by expression", header: asks("https://x.b.example"), want: "GET /", wantHeader: map[string]string{
			"Access-Control-Allow-Origin": "https://x.b.example", "Access-Control-Expose-Headers": "X-B"}},
		{name: "other origin", method: "OPTIONS", header: asks("https://x.b.example.evil.example"),
			wantHeader: map[string]string{"Access-Control-Allow-Origin": ""}},
		{name: "options without an origin", method: "OPTIONS", want: "OPTIONS /",
			wantHeader: map[string]string{"Access-Control-Allow-Origin": ""}},
	})
	for _, credentials := range []bool{false, true} {
		anyOne := gateway.Headers{AccessControlAllowOriginList: []string{"*"},
			AccessControlAllowCredentials: credentials}
		run(t, gateway.Middleware{Headers: &anyOne}, echo(), []request{
			{name: fmt.Sprintf("any origin, credentials %v", credentials), header: asks("https://a.example"),
				wantHeader: map[string]string{"Access-Control-Allow-Origin": "*"}}})
	}
}

func TestHeadersSecurity(t *testing.T) {
	value := gateway.Headers{
		AllowedHosts: []string{"a.example", "B.example"}, HostsProxyHeaders: []string{"X-Host"},
		SSLProxyHeaders: map[string]string{"X-Forwarded-Proto": "https"}, SSLRedirect: true,
		STSSeconds: 10, STSIncludeSubdomains: true, STSPreload: true, ContentTypeNosniff: true,
		BrowserXSSFilter: true, ReferrerPolicy: "no-referrer", PermissionsPolicy: "camera=()",
		ContentSecurityPolicy: "default-src 'self'", CustomFrameOptionsValue: "SAMEORIGIN",
		CustomResponseHeaders: map[string]string{"X-Out": "1"},
	}
	run(t, gateway.Middleware{Headers: &value}, echo(), []request{
		{name: "https", host: "a.example", header: map[string]string{"X-Forwarded-Proto": "https"},
			wantHeader: map[string]string{"Strict-Transport-Security": "max-age=10; includeSubDomains; preload",
				"X-Content-Type-Options": "nosniff", "X-Xss-Protection": "1; mode=block",
				"Referrer-Policy": "no-referrer", "Permissions-Policy": "camera=()",
				"Content-Security-Policy": "default-src 'self'", "X-Frame-Options": "SAMEORIGIN", "X-Out": "1"}},
		{name: "http", host: "b.example", target: "/x?y=%2F", status: 301, wantHeader: map[string]string{
			"Location": "https://b.example/x?y=%2F", "Strict-Transport-Security": "", "X-Out": "1"}},
		{name: "other host", host: "evil.example", status: 500, want: "Bad Host"},
		{name: "proxy's host", host: "evil.example", status: 301, header: map[string]string{"X-Host": "a.example"}},
	})
	run(t, gateway.Middleware{Headers: &gateway.Headers{SSLRedirect: true, SSLTemporaryRedirect: true,
		SSLHost: "c.example"}}, echo(), []request{{name: "temporary", host: "a.example", status: 307,
		wantHeader: map[string]string{"Location": "https://c.example/"}}})
	run(t, gateway.Middleware{Headers: &gateway.Headers{SSLRedirect: true, IsDevelopment: true, STSSeconds: 1,
		ForceSTSHeader: true}}, echo(), []request{{name: "development", want: "GET /",
		wantHeader: map[string]string{"Strict-Transport-Security": ""}}})
	run(t, gateway.Middleware{Headers: &gateway.Headers{STSSeconds: 1, ForceSTSHeader: true}}, echo(), []request{
		{name: "forced", wantHeader: map[string]string{"Strict-Transport-Security": "max-age=1"}}})
}

// writerProbe reports what a middleware does with the writer.
func writerProbe(t *testing.T, value gateway.Middleware, probe func(http.ResponseWriter, *http.Request)) string {
	t.Helper()
	server := serve(t, build(t, value, middleware.Deps{})(http.HandlerFunc(probe)))
	_, body := request{}.send(t, server.URL)
	return body
}

func TestHeadersWrapOnlyIfNeeded(t *testing.T) {
	probe := func(w http.ResponseWriter, _ *http.Request) {
		_, wrapped := w.(interface{ Unwrap() http.ResponseWriter })
		_, direct := w.(io.ReaderFrom)
		_, flusher := w.(http.Flusher)
		fmt.Fprint(w, wrapped, direct, flusher)
	}
	for want, value := range map[string]gateway.Headers{
		"false true true": {CustomRequestHeaders: map[string]string{"X-A": "1"}},
		"true true true":  {CustomResponseHeaders: map[string]string{"X-A": "1"}},
	} {
		if got := writerProbe(t, gateway.Middleware{Headers: &value}, probe); got != want {
			t.Errorf("wrapped, ReadFrom, Flush: %s, want %s", got, want)
		}
	}
}

// TestHeadersHijack takes the connection from under the wrapped writer, as a WebSocket
// does.
func TestHeadersHijack(t *testing.T) {
	value := gateway.Headers{CustomResponseHeaders: map[string]string{"X-A": "1"}}
	body := writerProbe(t, gateway.Middleware{Headers: &value}, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			fmt.Fprint(w, err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhijacked")
	})
	if body != "hijacked" {
		t.Errorf("the body is %q", body)
	}
}
