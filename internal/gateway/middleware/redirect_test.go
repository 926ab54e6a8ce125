package middleware_test

import (
	"net/http/httptest"
	"testing"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

func TestRedirectScheme(t *testing.T) {
	to := func(location string) map[string]string { return map[string]string{"Location": location} }
	proto := func(scheme string) map[string]string { return map[string]string{"X-Forwarded-Proto": scheme} }
	run(t, gateway.Middleware{RedirectScheme: &gateway.RedirectScheme{Scheme: "https"}}, echo(), []request{
		{name: "get", host: "a.example", target: "/x/?y=1", status: 302, wantHeader: to("https://a.example/x/?y=1")},
		{name: "post", method: "POST", host: "a.example", status: 307, wantHeader: to("https://a.example/")},
		{name: "port", host: "a.example:8080", status: 302, wantHeader: to("https://a.example/")},
		{name: "address", host: "[2001:db8::1]:80", status: 302, wantHeader: to("https://[2001:db8::1]/")},
		{name: "already", host: "a.example", header: proto("https"), want: "GET /"},
		{name: "already with port", host: "a.example:443", header: proto("HTTPS"), want: "GET /"},
		{name: "websocket", host: "a.example", header: proto("wss"), want: "GET /"},
		{name: "websocket in clear", host: "a.example", header: proto("ws"), status: 302},
		{name: "other proto", host: "a.example", header: proto("gopher"), status: 302},
		{name: "encoded path", host: "a.example", target: "/a%2Fb/%E4", status: 302,
			wantHeader: to("https://a.example/a%2Fb/%E4")},
		{name: "another host in the path", host: "a.example", target: "//evil.example/", status: 302,
			wantHeader: to("https://a.example//evil.example/")},
	})
	wrapped := build(t, gateway.Middleware{RedirectScheme: &gateway.RedirectScheme{Scheme: "https"}}, middleware.Deps{})
	for _, target := range []string{"/", "*"} {
		r := httptest.NewRequest("OPTIONS", target, nil)
		r.Host = map[string]string{"*": "a.example"}[target] // As HTTP/1.0 without a Host header.
		w := httptest.NewRecorder()
		wrapped(echo()).ServeHTTP(w, r)
		if w.Code != 400 {
			t.Errorf("%s for host %q: status %d, want 400", target, r.Host, w.Code)
		}
	}
	value := gateway.RedirectScheme{Scheme: "https", Port: "8443", Permanent: true}
	run(t, gateway.Middleware{RedirectScheme: &value}, echo(), []request{
		{name: "permanent get", host: "a.example", status: 301, wantHeader: to("https://a.example:8443/")},
		{name: "permanent post", method: "POST", host: "a.example:80", status: 308,
			wantHeader: to("https://a.example:8443/")},
		{name: "another port", host: "a.example", header: proto("https"), status: 301},
		{name: "the port", host: "a.example:8443", header: proto("https"), want: "GET /"},
	})
}

func TestRedirectRegex(t *testing.T) {
	to := func(location string) map[string]string { return map[string]string{"Location": location} }
	value := gateway.RedirectRegex{Regex: `^https?://www\.(a\.example)(.*)`, Replacement: "https://${1}${2}",
		Permanent: true}
	run(t, gateway.Middleware{RedirectRegex: &value}, echo(), []request{
		{name: "match", host: "www.a.example", target: "/x?y=1", status: 301,
			wantHeader: to("https://a.example/x?y=1")},
		{name: "post", method: "POST", host: "www.a.example:80", status: 308, wantHeader: to("https://a.example/")},
		{name: "no match", host: "a.example", target: "/x?y=1", want: "GET /x?y=1"},
		{name: "with port", host: "www.a.example:8080", status: 301, wantHeader: to("https://a.example:8080/")},
		{name: "encoded", host: "www.a.example", target: "/%0d%0aX:%20y", status: 301,
			wantHeader: to("https://a.example/%0d%0aX:%20y")},
	})
	same := gateway.RedirectRegex{Regex: `^http://(.*)`, Replacement: "http://$1"}
	run(t, gateway.Middleware{RedirectRegex: &same}, echo(), []request{{name: "to itself", want: "GET /"}})
	groupless := gateway.RedirectRegex{Regex: `^http://.*$`, Replacement: "https://$1"}
	run(t, gateway.Middleware{RedirectRegex: &groupless}, echo(), []request{{name: "no group", status: 302,
		wantHeader: to("https:")}})
	broken := gateway.RedirectRegex{Regex: `^http://[^/]+/(.*)`, Replacement: "http://[$1"}
	run(t, gateway.Middleware{RedirectRegex: &broken}, echo(), []request{{name: "no URL", target: "/x", status: 400}})
}
