package build

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/gateway/observe"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/services"
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/model/gateway"
)

// TestPanicDisablesOneRouter builds a router whose rule panics: it is disabled with the panic as its reason, and the
// other one is in use. With another rule, it is built again.
func TestPanicDisablesOneRouter(t *testing.T) {
	static, log := &gateway.Static{EntryPoints: []gateway.EntryPoint{{Name: "web"}}, Default: []string{"web"}},
		slog.New(slog.DiscardHandler)
	observer, err := observe.New(static)
	if err != nil {
		t.Fatal(err)
	}
	current := new(snapshot.Current)
	o, err := New(Settings{Static: static, Log: log, Observer: observer, Current: current,
		Services: services.New(log, observer.Metrics),
		Internal: map[string]http.Handler{"noop@internal": http.NotFoundHandler(),
			"ping@internal": http.NotFoundHandler()}})
	if err != nil {
		t.Fatal(err)
	}
	config := func(service, broken string) *gateway.Config {
		return &gateway.Config{HTTP: gateway.HTTP{Routers: map[string]*gateway.Router{
			"good@file":   {Rule: "Host(`good.test`)", Service: service},
			"broken@file": {Rule: broken, Service: service}}}}
	}
	inUse := func() (names []string) {
		for _, r := range current.Load().Entries["web"].Of(false).All() {
			names = append(names, r.Name)
		}
		return names
	}
	o.Apply(config("noop@internal", "Host(`broken.test`)"), nil)
	o.kept.routers["broken@file"].rule = new(rule.Rule)
	statuses := o.Apply(config("ping@internal", "Host(`broken.test`)"), nil)
	if reason := statuses[0].Reasons; len(reason) != 1 || !strings.HasPrefix(reason[0], "internal error at ") {
		t.Errorf("the states are %+v", statuses)
	}
	if got := inUse(); !slices.Equal(got, []string{"good@file"}) {
		t.Errorf("%v are in use", got)
	}
	o.Apply(config("ping@internal", "Host(`broken.test`) && PathPrefix(`/`)"), nil)
	if got := inUse(); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"broken@file", "good@file"}) {
		t.Errorf("%v are in use after a change", got)
	}
}
