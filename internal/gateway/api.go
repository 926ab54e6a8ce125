package gateway

import (
	"maps"
	"net/http"
	"slices"

	"fairlead/internal/gateway/explain"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/view"
)

// api returns the handler of the read-only API, whose paths and keys are Traefik's.
func (g *Gateway) api() http.Handler {
	mux := http.NewServeMux()
	view.Add(mux, view.Static{Static: &g.static, Began: g.began}, g.Objects)
	mux.Handle("GET /api/explain", explain.Handler(g.source))
	return mux
}

// Objects returns all objects with their states.
func (g *Gateway) Objects() view.RawData {
	now := g.source()
	from := view.Source{Static: &g.static, Config: now.Config, Objects: slices.Clone(now.Statuses),
		Down: g.objects.Down, TCPDown: g.objects.TCPDown, Failures: g.objects.LastFailures,
		Certificates: now.Certificates()}
	for _, name := range slices.Sorted(maps.Keys(g.internal)) {
		from.Objects = append(from.Objects, status.Status{Kind: "service", Name: name, State: status.Enabled})
	}
	return view.Of(from)
}

// source returns what explanations are about.
func (g *Gateway) source() explain.Source {
	return explain.Source{Snapshot: g.current.Load(), Static: &g.static, Down: g.objects.Down,
		Failures: g.objects.LastFailures}
}

// Explain says which router a request takes that arrives at the entry point, as explain.Source does.
func (g *Gateway) Explain(entry, method, text string) (shown.Answer, error) {
	return g.source().Explain(entry, method, text)
}
