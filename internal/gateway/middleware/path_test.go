package middleware_test

import (
	"testing"

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
		{name: "appended", target: "/api/x", header: map[string]string{"X-Forwarded-Prefix": "/a", "X_forwarded_prefix": "/b"},
			want: "GET /x X-Forwarded-Prefix=/a,/api X_Forwarded_Prefix="},
		{name: "dot segments", target: "/api../x", status: 400},
		{name: "encoded dot segments", target: "/api%2e%2e/x", status: 400},
		{name: "one dot", target: "/api%2e/x", status: 400},
		{name: "one dot at the end", target: "/api.", status: 400},
		{name: "encoded slash", target: "/api..%2Fx", status: 400},
		{name: "dots in a name", target: "/api..x", want: "GET /..x X-Forwarded-Prefix=/api X_Forwarded_Prefix="},
	})
}
