package middleware_test

import (
	"testing"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

func TestStripPrefix(t *testing.T) {
	value := gateway.StripPrefix{Prefixes: []string{"/api", " /stat/ ", "/ä b"}}
	run(t, gateway.Middleware{StripPrefix: &value}, echo("X-Forwarded-Prefix", "X_Forwarded_Prefix"), []request{
		{name: "prefix", target: "/api/x?y=/api", want: "GET /x?y=/api X-Forwarded-Prefix=/api X_Forwarded_Prefix="},
		{name: "whole", target: "/api", want: "GET / X-Forwarded-Prefix=/api X_Forwarded_Prefix="},
		{name: "no slash", target: "/apis", want: "GET /s X-Forwarded-Prefix=/api X_Forwarded_Prefix="},
		{name: "none", target: "/x/api", want: "GET /x/api X-Forwarded-Prefix= X_Forwarded_Prefix="},
		{name: "with a slash", target: "/stat/us", want: "GET /us X-Forwarded-Prefix=/stat/ X_Forwarded_Prefix="},
		{name: "encoded", target: "/api/a%2Fb%3F", want: "GET /a%2Fb%3F X-Forwarded-Prefix=/api X_Forwarded_Prefix="},
		{name: "encoded prefix", target: "/%C3%A4%20b/c%20d",
			want: "GET /c%20d X-Forwarded-Prefix=/%C3%A4%20b X_Forwarded_Prefix="},
		{name: "appended", target: "/api/x",
			header: map[string]string{"X-Forwarded-Prefix": "/a", "X_forwarded_prefix": "/b"},
			want:   "GET /x X-Forwarded-Prefix=/a,/api X_Forwarded_Prefix="},
		{name: "dot segments", target: "/api../x", status: 400},
		{name: "encoded dot segments", target: "/api%2e%2e/x", status: 400},
		{name: "one dot", target: "/api%2e/x", status: 400},
		{name: "one dot at the end", target: "/api.", status: 400},
		{name: "encoded slash", target: "/api..%2Fx", status: 400},
		{name: "dots in a name", target: "/api..x", want: "GET /..x X-Forwarded-Prefix=/api X_Forwarded_Prefix="},
	})
}

// TestForceSlash checks what a later middleware gets of a path of which nothing remains.
func TestForceSlash(t *testing.T) {
	after := build(t, gateway.Middleware{AddPrefix: &gateway.AddPrefix{Prefix: "/new"}}, middleware.Deps{})(echo())
	for _, s := range []struct {
		name  string
		force *bool
		want  string
	}{{"by default", nil, "GET /new"}, {"true", new(true), "GET /new/"}, {"false", new(false), "GET /new"}} {
		t.Run(s.name, func(t *testing.T) {
			run(t, gateway.Middleware{StripPrefix: &gateway.StripPrefix{Prefixes: []string{"/a"}, ForceSlash: s.force}},
				after, []request{
					{name: "nothing", target: "/a", want: s.want},
					{name: "a slash", target: "/a/", want: "GET /new/"},
					{name: "a name", target: "/ab", want: "GET /new/b"},
				})
		})
	}
}

func TestStripPrefixRegex(t *testing.T) {
	value := gateway.StripPrefixRegex{Regex: []string{"/v[0-9]+", "/api", "/x"}}
	run(t, gateway.Middleware{StripPrefixRegex: &value}, echo("X-Forwarded-Prefix"), []request{
		{name: "prefix", target: "/v12/a%2Fb?c", want: "GET /a%2Fb?c X-Forwarded-Prefix=/v12"},
		{name: "not at the begin", target: "/a/v12", want: "GET /a/v12 X-Forwarded-Prefix="},
		{name: "second expression", target: "/api/v1", want: "GET /v1 X-Forwarded-Prefix=/api"},
		{name: "whole", target: "/x", want: "GET / X-Forwarded-Prefix=/x"},
		{name: "encoded", target: "/%76%31/a", want: "GET /a X-Forwarded-Prefix=/v1"},
		{name: "encoded dot segment", target: "/api%2e/x", status: 400},
		{name: "dot segments", target: "/api../x", status: 400},
	})
	after := build(t, gateway.Middleware{AddPrefix: &gateway.AddPrefix{Prefix: "/new"}}, middleware.Deps{})(echo())
	run(t, gateway.Middleware{StripPrefixRegex: &value}, after, []request{
		{name: "nothing", target: "/x", want: "GET /new"}, {name: "a slash", target: "/x/", want: "GET /new/"}})
}

func TestAddPrefix(t *testing.T) {
	run(t, gateway.Middleware{AddPrefix: &gateway.AddPrefix{Prefix: "a b/é"}}, echo(), []request{
		{name: "path", target: "/x?y", want: "GET /a%20b/%C3%A9/x?y"},
		{name: "encoded", target: "/x%2Fy%20", want: "GET /a%20b/%C3%A9/x%2Fy%20"},
		{name: "root", want: "GET /a%20b/%C3%A9/"},
	})
}

func TestReplacePath(t *testing.T) {
	value := gateway.ReplacePath{Path: "new%2Fpath"}
	run(t, gateway.Middleware{ReplacePath: &value}, echo("X-Replaced-Path"), []request{
		{name: "path", target: "/x%2Fy?z", want: "GET /new%2Fpath?z X-Replaced-Path=/x%2Fy"},
		{name: "hostile header", target: "/x", header: map[string]string{"X-Replaced-Path": "/admin"},
			want: "GET /new%2Fpath X-Replaced-Path=/x"},
	})
}

func TestReplacePathRegex(t *testing.T) {
	value := gateway.ReplacePathRegex{Regex: "^/foo/(.*)", Replacement: "/bar/$1"}
	run(t, gateway.Middleware{ReplacePathRegex: &value}, echo("X-Replaced-Path"), []request{
		{name: "match", target: "/foo/x%2Fy?z", want: "GET /bar/x%2Fy?z X-Replaced-Path=/foo/x%2Fy"},
		{name: "no match", target: "/x/foo/", want: "GET /x/foo/ X-Replaced-Path="},
	})
	value.Regex, value.Replacement = "^/foo(.*)", "$1"
	run(t, gateway.Middleware{ReplacePathRegex: &value}, echo("X-Replaced-Path"), []request{
		{name: "no slash", target: "/fooa", want: "GET /a X-Replaced-Path=/fooa"},
		{name: "dot segments", target: "/foo../x", status: 400},
		{name: "encoded dot segments", target: "/foo%2e%2e%2fx", status: 400},
	})
	value.Regex, value.Replacement = "^/p/(..)(..)", "/%$2$1"
	run(t, gateway.Middleware{ReplacePathRegex: &value}, echo(), []request{
		{name: "broken encoding", target: "/p/zzyy", status: 400}})
}
