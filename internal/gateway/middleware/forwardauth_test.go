package middleware_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"fairlead/internal/model/gateway"
)

// auth returns a server that answers with 200 and the request that it received, in
// headers.
func auth(t *testing.T, names ...string) *httptest.Server {
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var text []string
		for _, name := range names {
			text = append(text, name+"="+strings.Join(r.Header.Values(name), ","))
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Saw", strings.Join(append(text, r.Method, string(body)), " "))
		w.Header().Set("X-User", "joe")
		w.Header().Set("X-Team-A", "a")
		w.Header().Add("Set-Cookie", "auth=1; Path=/")
		w.Header().Add("Set-Cookie", "other=1")
	}))
}

func TestForwardAuthHeaders(t *testing.T) {
	forwarded := []string{"X-Forwarded-For", "X-Forwarded-Port",
		"X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Uri",
		"X-Forwarded-Method", "X-Forwarded-Prefix", "X_forwarded_uri", "X-Real-Ip", "Upgrade", "X-Hop", "X-Kept"}
	hostile := map[string]string{"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https",
		"X-Forwarded-Prefix": "/p", "X-Forwarded-Host": "evil", "X-Forwarded-Uri": "/public",
		"X_forwarded_uri": "/public", "X-Real-Ip": "192.0.2.2",
		"X-Forwarded-Method": "HEAD", "Upgrade": "websocket", "Connection": "upgrade, x-hop, X-Forwarded-For",
		"X-Hop": "1", "X-Kept": "2"}
	all := gateway.ForwardAuth{TrustForwardHeader: new(false),
		Address: auth(t, forwarded...).URL, AuthResponseHeaders: []string{"X-Saw"}}
	run(t, gateway.Middleware{ForwardAuth: &all}, echo("X-Saw"), []request{{name: "no trust", method: "PUT",
		host: "a.example", target: "/x?y", header: hostile, want: "PUT /x?y X-Saw=X-Forwarded-For=127.0.0.1 " +
			"X-Forwarded-Port=80 X-Forwarded-Proto=http X-Forwarded-Host=a.example X-Forwarded-Uri=/x?y X-Forwarded-Method=PUT " +
			"X-Forwarded-Prefix= X_forwarded_uri= X-Real-Ip= Upgrade= X-Hop= X-Kept=2 GET"}})
	trusting := all
	trusting.TrustForwardHeader = new(true)
	delete(hostile, "Connection")
	run(t, gateway.Middleware{ForwardAuth: &trusting}, echo("X-Saw"), []request{{name: "trust", host: "a.example",
		header: hostile, want: "GET / X-Saw=X-Forwarded-For=192.0.2.1, 127.0.0.1 X-Forwarded-Port=443 X-Forwarded-Proto=https " +
			"X-Forwarded-Host=evil X-Forwarded-Uri=/public X-Forwarded-Method=HEAD X-Forwarded-Prefix=/p " +
			"X_forwarded_uri=/public X-Real-Ip=192.0.2.2 Upgrade= X-Hop=1 X-Kept=2 GET"}})
	only := all
	only.TrustForwardHeader, only.AuthRequestHeaders = new(true), []string{"x-kept"}
	run(t, gateway.Middleware{ForwardAuth: &only}, echo("X-Saw"), []request{{name: "some headers", host: "a.example",
		header: hostile, want: "GET / X-Saw=X-Forwarded-For=127.0.0.1 X-Forwarded-Port=80 X-Forwarded-Proto=http " +
			"X-Forwarded-Host=a.example X-Forwarded-Uri=/ X-Forwarded-Method=GET X-Forwarded-Prefix= " +
			"X_forwarded_uri= X-Real-Ip= Upgrade= X-Hop= X-Kept=2 GET"}})
	byDefault := all
	byDefault.TrustForwardHeader = nil
	run(t, gateway.Middleware{ForwardAuth: &byDefault}, echo("X-Saw"), []request{{name: "default", host: "a.example",
		header: hostile, want: "GET / X-Saw=X-Forwarded-For=127.0.0.1 X-Forwarded-Port=80 X-Forwarded-Proto=http " +
			"X-Forwarded-Host=a.example X-Forwarded-Uri=/ X-Forwarded-Method=GET X-Forwarded-Prefix=/p " +
			"X_forwarded_uri= X-Real-Ip=192.0.2.2 Upgrade= X-Hop=1 X-Kept=2 GET"}})
}

func TestForwardAuthAccepts(t *testing.T) {
	value := gateway.ForwardAuth{Address: auth(t).URL, AuthResponseHeaders: []string{"X-User", "X-Absent"},
		AuthResponseHeadersRegex: "^X-Team-", AddAuthCookiesToResponse: []string{"auth"}}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Set-Cookie", "auth=server")
		w.Header().Add("Set-Cookie", "session=2; Path=/x")
		echo("X-User", "X_user", "X-Absent", "X-Team-A", "X-Team-B", "X_team_b", "Connection").ServeHTTP(w, r)
	})
	run(t, gateway.Middleware{ForwardAuth: &value}, handler, []request{{name: "accepted",
		header: map[string]string{"X-User": "root", "X_user": "root", "X-Absent": "1", "X-Team-B": "1", "X_team_b": "1",
			"Connection": "X-User, close"},
		want:       "GET / X-User=joe X_user= X-Absent= X-Team-A=a X-Team-B= X_team_b= Connection=close",
		wantHeader: map[string]string{"Set-Cookie": "session=2; Path=/x,auth=1; Path=/"}}})
}

func TestForwardAuthRefuses(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Login", "yes")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Location", "/login")
		code := map[string]int{"/401": 401, "/302": 302, "/500": 500}[r.URL.Path]
		w.WriteHeader(code)
		fmt.Fprint(w, "please log in")
	}))
	mustNot := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request was accepted") })
	limit := int64(4)
	for _, c := range []struct {
		value gateway.ForwardAuth
		want  request
	}{
		{gateway.ForwardAuth{Address: server.URL + "/401"}, request{name: "401", status: 401, want: "please log in",
			wantHeader: map[string]string{"X-Login": "yes", "X-Hop": ""}}},
		{gateway.ForwardAuth{Address: server.URL + "/500"}, request{name: "500", status: 500, want: "please log in"}},
		{gateway.ForwardAuth{Address: server.URL + "/302"}, request{name: "redirect", status: 302,
			wantHeader: map[string]string{"Location": server.URL + "/login"}}},
		{gateway.ForwardAuth{Address: server.URL + "/302", PreserveLocationHeader: true},
			request{name: "kept location", status: 302, wantHeader: map[string]string{"Location": "/login"}}},
		{gateway.ForwardAuth{Address: server.URL + "/401", AuthSigninURL: "https://login.example/"},
			request{name: "sign in", status: 302, wantHeader: map[string]string{"Location": "https://login.example/"}}},
		{gateway.ForwardAuth{Address: server.URL + "/500", MaxResponseBodySize: &limit},
			request{name: "large response", status: 401, want: "Unauthorized"}},
		{gateway.ForwardAuth{Address: server.URL + "/500", ForwardBody: true, MaxBodySize: &limit},
			request{name: "large request", method: "POST", body: "12345", status: 401, want: "Unauthorized"}},
		{gateway.ForwardAuth{Address: "http://127.0.0.1:1"}, request{name: "no server", status: 500}},
	} {
		run(t, gateway.Middleware{ForwardAuth: &c.value}, mustNot, []request{c.want})
	}
}

func TestForwardAuthBody(t *testing.T) {
	limit := int64(5)
	value := gateway.ForwardAuth{Address: auth(t).URL, AuthResponseHeaders: []string{"X-Saw"}, ForwardBody: true,
		PreserveRequestMethod: true, MaxBodySize: &limit}
	run(t, gateway.Middleware{ForwardAuth: &value}, echo("X-Saw"), []request{
		{name: "both get the body", method: "POST", body: "12345", want: "POST / X-Saw=POST 12345 12345"},
		{name: "no body", want: "GET / X-Saw=GET"},
	})
}

func TestForwardAuthTLS(t *testing.T) {
	server := httptest.NewTLSServer(echo())
	defer server.Close()
	server.Config.ErrorLog = nil
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	for _, c := range []struct {
		name   string
		tls    gateway.ClientTLS
		status int
	}{
		{"unknown authority", gateway.ClientTLS{}, 500},
		{"authority", gateway.ClientTLS{CA: ca}, 200},
		{"not verified", gateway.ClientTLS{InsecureSkipVerify: true}, 200},
	} {
		value := gateway.ForwardAuth{Address: server.URL, TLS: &c.tls}
		run(t, gateway.Middleware{ForwardAuth: &value}, echo(), []request{{name: c.name, status: c.status}})
	}
}
