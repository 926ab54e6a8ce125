package view_test

import (
	"testing"

	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/view"
)

// TestWrong keeps the routers that need attention, all certificates and sources, and nothing else.
func TestWrong(t *testing.T) {
	routers := map[string]view.Router{"a": {Info: view.Info{Status: "enabled"}},
		"b": {Info: view.Info{Status: "disabled"}},
		"c": {Info: view.Info{Status: "enabled", Errors: []string{"the rule is that of d"}}}}
	d := view.RawData{Routers: routers, TCPRouters: routers, UDPRouters: routers,
		Services: map[string]view.Service{"s": {}}, Certificates: []shown.Certificate{{}},
		Sources: map[string]view.SourceState{"file": {}}}.Wrong()
	for _, some := range []map[string]view.Router{d.Routers, d.TCPRouters, d.UDPRouters} {
		_, b := some["b"]
		if _, c := some["c"]; len(some) != 2 || !b || !c {
			t.Errorf("%+v", some)
		}
	}
	if len(d.Certificates) != 1 || len(d.Sources) != 1 || d.Services != nil || len(routers) != 3 {
		t.Errorf("%+v", d)
	}
}
