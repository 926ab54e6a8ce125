package target

import (
	"net/http"
	"net/url"
	"testing"

	"fairlead/internal/model/gateway"
)

// TestClean cleans targets at entry points with different settings.
func TestClean(t *testing.T) {
	no := false
	for _, c := range []struct {
		name   string
		at     gateway.EntryPoint
		target string
		want   string // empty: the target is invalid
	}{
		{"clean already", gateway.EntryPoint{}, "/a?x=1;y=2", "/a?x=1;y=2"},
		{"by default", gateway.EntryPoint{}, "/b/../c//%61", "/c/a"},
		{"not sanitized", gateway.EntryPoint{SanitizePath: &no}, "/b/../c//%61", "/b/../c//a"},
		{"semicolons", gateway.EntryPoint{EncodeQuerySemicolons: true}, "/a?x=1;y=2", "/a?x=1%3By=2"},
		{"fragment", gateway.EntryPoint{}, "/a#b", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, err := url.Parse(c.target)
			if err != nil {
				t.Fatal(err)
			}
			r := &http.Request{URL: u, RequestURI: c.target}
			ok := Of(c.at).Clean(r)
			if ok != (c.want != "") || ok && (r.RequestURI != c.want || r.URL.RequestURI() != c.want) {
				t.Errorf("%s became %s, %v, want %q", c.target, r.RequestURI, ok, c.want)
			}
		})
	}
}
