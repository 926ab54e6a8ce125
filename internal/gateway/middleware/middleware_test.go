package middleware_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// echo answers with the request that it received: method, request target, host, then the
// headers with the given names, then the body.
func echo(names ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := []string{r.Method, r.RequestURI}
		if r.URL.RequestURI() != r.RequestURI {
			text = append(text, "URL differs: "+r.URL.RequestURI())
		}
		for _, name := range names {
			if name == "Host" {
				text = append(text, "Host="+r.Host)
			} else {
				text = append(text, name+"="+strings.Join(r.Header.Values(name), ","))
			}
		}
		body, _ := io.ReadAll(r.Body)
		if len(body) > 0 {
			text = append(text, string(body))
		}
		fmt.Fprint(w, strings.Join(text, " "))
	})
}

// request is one request of a test and what a client expects of its response.
type request struct {
	name string
	// method is by default GET, target by default /.
	method, target, host, body string
	header                     map[string]string
	status                     int
	// want is the body, if not empty. wantHeader are headers of the response; "" is a
	// missing one.
	want       string
	wantHeader map[string]string
}

// build makes a middleware and fails the test if that is not possible.
func build(t *testing.T, value gateway.Middleware, deps middleware.Deps) base.Func {
	t.Helper()
	wrap, err := middleware.New("test", &value, deps)
	if err != nil {
		t.Fatal(err)
	}
	return wrap
}

// serve starts a server on loopback.
func serve(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

// run sends requests to a server with the middleware in front of a handler.
func run(t *testing.T, value gateway.Middleware, handler http.Handler, requests []request) {
	t.Helper()
	server := serve(t, build(t, value, middleware.Deps{})(handler))
	for _, r := range requests {
		t.Run(r.name, func(t *testing.T) { r.check(t, server.URL) })
	}
}

// send sends a request without following redirections or decompressing.
func (r request) send(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	if r.target == "" {
		r.target = "/"
	}
	req, err := http.NewRequest(r.method, url+r.target, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = r.host
	for name, value := range r.header {
		req.Header[name] = []string{value}
	}
	response, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func (r request) check(t *testing.T, url string) {
	t.Helper()
	response, body := r.send(t, url)
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if response.StatusCode != r.status {
		t.Errorf("status %d, want %d", response.StatusCode, r.status)
	}
	if r.want != "" && strings.TrimSpace(body) != r.want {
		t.Errorf("body %q, want %q", body, r.want)
	}
	for _, name := range slices.Sorted(maps.Keys(r.wantHeader)) {
		if got := strings.Join(response.Header.Values(name), ","); got != r.wantHeader[name] {
			t.Errorf("%s is %q, want %q", name, got, r.wantHeader[name])
		}
	}
}

// TestErrors checks that each invalid value is refused with an error that says why.
func TestErrors(t *testing.T) {
	for want, value := range map[string]*gateway.Middleware{
		"it has no settings":  nil,
		"its type is missing": {},
		"it has 2 types": {StripPrefix: &gateway.StripPrefix{Prefixes: []string{"/a"}},
			RedirectScheme: &gateway.RedirectScheme{Scheme: "https"}},
		"set users or usersFile":   {BasicAuth: &gateway.BasicAuth{}},
		"want NAME:HASH":           {BasicAuth: &gateway.BasicAuth{Users: []string{"joe"}}},
		"the hash's format":        {BasicAuth: &gateway.BasicAuth{Users: []string{"joe:secret"}}},
		"read bcrypt hash":         {BasicAuth: &gateway.BasicAuth{Users: []string{"joe:$2y$x"}}},
		"read MD5 hash":            {BasicAuth: &gateway.BasicAuth{Users: []string{"joe:$apr1$short"}}},
		"read SHA-1 hash":          {BasicAuth: &gateway.BasicAuth{Users: []string{"joe:{SHA}abc"}}},
		"read users: open /absent": {BasicAuth: &gateway.BasicAuth{UsersFile: "/absent"}},
		"the scheme is missing":    {RedirectScheme: &gateway.RedirectScheme{}},
		"no option is set":         {StripPrefix: &gateway.StripPrefix{}},
		"control characters": {Headers: &gateway.Headers{
			CustomResponseHeaders: map[string]string{"X-A": "a\r\nX-B: b"}}},
		"letters, digits": {Headers: &gateway.Headers{CustomRequestHeaders: map[string]string{"X A": "a"}}},
		"read accessControlAllowOriginListRegex": {Headers: &gateway.Headers{
			AccessControlAllowOriginListRegex: []string{"("}}},
		"use encoding":         {Compress: &gateway.Compress{Encodings: []string{"deflate"}}},
		"use default encoding": {Compress: &gateway.Compress{Encodings: []string{"br"}, DefaultEncoding: "gzip"}},
		"read content type":    {Compress: &gateway.Compress{ExcludedContentTypes: []string{"a/b/c"}}},
		"exclude each other": {Compress: &gateway.Compress{ExcludedContentTypes: []string{"a/b"},
			IncludedContentTypes: []string{"a/c"}}},
		"the regular expression is missing": {RedirectRegex: &gateway.RedirectRegex{Replacement: "x"}},
		"read regular expression":           {RedirectRegex: &gateway.RedirectRegex{Regex: "("}},
		"read address":                      {ForwardAuth: &gateway.ForwardAuth{Address: "auth:9000"}},
		"read authResponseHeadersRegex": {ForwardAuth: &gateway.ForwardAuth{Address: "http://a",
			AuthResponseHeadersRegex: "("}},
		"read tls.ca: open": {ForwardAuth: &gateway.ForwardAuth{Address: "http://a",
			TLS: &gateway.ClientTLS{CA: "/absent"}}},
		"it has no certificate in PEM": {ForwardAuth: &gateway.ForwardAuth{Address: "http://a",
			TLS: &gateway.ClientTLS{CA: "-----BEGIN X-----"}}},
		"sourceRange is empty": {IPAllowList: &gateway.IPAllowList{}},
		"read sourceRange":     {IPWhiteList: &gateway.IPAllowList{SourceRange: []string{"10.0.0.0/33"}}},
		"read excludedIPs": {IPAllowList: &gateway.IPAllowList{SourceRange: []string{"::/0"},
			IPStrategy: &gateway.IPStrategy{ExcludedIPs: []string{"x"}}}},
		"depth must not be negative": {IPAllowList: &gateway.IPAllowList{SourceRange: []string{"::/0"},
			IPStrategy: &gateway.IPStrategy{Depth: -1}}},
		"use rejectStatusCode 99": {IPAllowList: &gateway.IPAllowList{SourceRange: []string{"::/0"},
			RejectStatusCode: 99}},
		"set prefix to a path":   {AddPrefix: &gateway.AddPrefix{Prefix: "/a/../b"}},
		"set path to a path":     {ReplacePath: &gateway.ReplacePath{Path: "/%2e%2e/"}},
		"set status and service": {Errors: &gateway.Errors{Status: []string{"500"}}},
		"rates are not shared":   {RateLimit: &gateway.RateLimit{Average: 1, Redis: &gateway.Redis{}}},
		"must not be negative":   {RateLimit: &gateway.RateLimit{Average: -1}},
		"burst is too large":     {RateLimit: &gateway.RateLimit{Average: 1, Burst: 1 << 60}},
		"set one of ipStrategy": {RateLimit: &gateway.RateLimit{Average: 1, SourceCriterion: &gateway.SourceCriterion{
			RequestHost: true, RequestHeaderName: "X-A"}}},
		"set amount":                 {InFlightReq: &gateway.InFlightReq{}},
		"sizes must not be negative": {Buffering: &gateway.Buffering{MaxRequestBodyBytes: -1}},
		`function "Foo" is unknown: use Attempts, IsNetworkError, ResponseCode`: {Buffering: &gateway.Buffering{
			RetryExpression: "Foo() > 1"}},
		`"(" is missing`:              {Buffering: &gateway.Buffering{RetryExpression: "Attempts > 1"}},
		`")" is missing`:              {Buffering: &gateway.Buffering{RetryExpression: "(Attempts() > 1"}},
		`">" is not followed`:         {Buffering: &gateway.Buffering{RetryExpression: "Attempts() >"}},
		"compare Attempts":            {Buffering: &gateway.Buffering{RetryExpression: "Attempts()"}},
		`"IsNetworkError" is un`:      {Buffering: &gateway.Buffering{RetryExpression: "IsNetworkError() IsNetworkError()"}},
		`"%" is unknown`:              {Buffering: &gateway.Buffering{RetryExpression: " %"}},
		"has 1 arguments":             {Buffering: &gateway.Buffering{RetryExpression: "Attempts(1) > 1"}},
		`argument "" is not`:          {Buffering: &gateway.Buffering{RetryExpression: "Attempts(1,"}},
		"set attempts":                {Retry: &gateway.Retry{}},
		"there is no reason to retry": {Retry: &gateway.Retry{Attempts: 2, DisableRetryOnNetworkError: true}},
		`read status "x"`:             {Retry: &gateway.Retry{Attempts: 2, Status: []string{"x"}}},
		"want NAME:REALM:HASH":        {DigestAuth: &gateway.DigestAuth{Users: []string{"joe:traefik:secret"}}},
		`no user has the realm "a"`: {DigestAuth: &gateway.DigestAuth{Realm: "a",
			Users: []string{"joe:traefik:a2688e031edb4be6a3797f3882655c05"}}},
		"durations must not be negative": {CircuitBreaker: &gateway.CircuitBreaker{CheckPeriod: -1,
			Expression: "NetworkErrorRatio() > 0"}},
		"use responseCode 7": {CircuitBreaker: &gateway.CircuitBreaker{ResponseCode: 7,
			Expression: "NetworkErrorRatio() > 0"}},

		"ResponseCodeRatio has 1 arg": {CircuitBreaker: &gateway.CircuitBreaker{
			Expression: "ResponseCodeRatio(1) > 1"}},
		`instead of plugin "crowdsec-x" use forwardAuth`: {Plugin: map[string]map[string]string{"crowdsec-x": {}}},
		`instead of plugin "unknown" use a middleware`:   {Plugin: map[string]map[string]string{"unknown": nil}},
		"no other middleware":                            {Chain: &gateway.Chain{Middlewares: []string{"a"}}},
	} {
		t.Run(want, func(t *testing.T) {
			_, err := middleware.New("m@docker", value, middleware.Deps{})
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"m@docker"`) {
				t.Errorf("error %q, want %q and the name", err, want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error quotes a password's hash: %v", err)
			}
		})
	}
}
