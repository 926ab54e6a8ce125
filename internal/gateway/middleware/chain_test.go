package middleware_test

import (
	"errors"
	"strings"
	"testing"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

// named returns the dependencies with middlewares of these names.
func named(values map[string]gateway.Middleware) middleware.Deps {
	return middleware.Deps{Middleware: func(name string) (string, *gateway.Middleware, error) {
		value, ok := values[strings.TrimSuffix(name, "@file")]
		if !ok {
			return "", nil, errors.New("it does not exist")
		}
		return strings.TrimSuffix(name, "@file") + "@file", &value, nil
	}}
}

func chain(names ...string) gateway.Middleware {
	return gateway.Middleware{Chain: &gateway.Chain{Middlewares: names}}
}

func TestChain(t *testing.T) {
	deps := named(map[string]gateway.Middleware{
		"a":    {StripPrefix: &gateway.StripPrefix{Prefixes: []string{"/a"}}},
		"b":    {StripPrefix: &gateway.StripPrefix{Prefixes: []string{"/b"}}},
		"both": chain("b@file", "a"), "self": chain("other"), "other": chain("self@file"),
	})
	server := serve(t, build(t, chain("a", "both", "a"), deps)(echo()))
	for _, r := range []request{
		{name: "in order", target: "/a/b/a/a/x", want: "GET /x"},
		{name: "not the other order", target: "/b/a/x", want: "GET /x"},
		{name: "first of the chain", target: "/a/a/b/x", want: "GET /b/x"},
	} {
		t.Run(r.name, func(t *testing.T) { r.check(t, server.URL) })
	}
	for want, value := range map[string]gateway.Middleware{
		"self@file → other@file → self@file": chain("self"),
		`use middleware "c": it does not`:    chain("a", "c"),
		"no option is set":                   chain(),
	} {
		if _, err := middleware.New("test", &value, deps); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
