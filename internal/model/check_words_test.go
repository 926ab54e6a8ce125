package model_test

import (
	"strings"
	"testing"

	"fairlead/internal/model"
)

func TestCheckWords(t *testing.T) {
	for _, c := range []struct {
		check model.Check
		want  string // in the error; empty for none
	}{
		{model.Check{}, ""},
		{model.Check{Type: model.CheckHTTP, Method: "OPTIONS", Path: "/live?deep=1&x=%20",
			Host: "www.example.com:8080"}, ""},
		{model.Check{Type: model.CheckDNS, Query: "example.com", Record: "aaaa"}, ""},
		{model.Check{Type: model.CheckHTTP, Path: "live"}, `path "live"`},
		{model.Check{Type: model.CheckHTTP, Path: "/a b"}, `path "/a b"`},
		{model.Check{Type: model.CheckHTTP, Method: "GET / HTTP/1.0\r\nX:"}, "method"},
		{model.Check{Type: model.CheckHTTP, Host: "a\nb"}, "host"},
		{model.Check{Type: model.CheckHTTPS, TLSName: "exämple.com"}, "TLS name"},
		{model.Check{Type: model.CheckDNS, Query: "example.com", Record: "ANY"}, `record "ANY": want A, AAAA`},
	} {
		err := c.check.Validate(model.TCP)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.check, err, c.want)
		}
	}
}
