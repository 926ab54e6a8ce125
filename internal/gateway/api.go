package gateway

import (
	"maps"
	"net/http"
	"slices"

	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/view"
)

// RawData has all objects with their states.
type RawData = view.RawData

// api returns the handler of the read-only API, whose paths and keys are Traefik's.
func (g *Gateway) api() http.Handler {
	mux := http.NewServeMux()
	view.Add(mux, view.Static{Static: &g.static, Began: g.began}, g.rawData)
	mux.HandleFunc("GET /api/explain", g.serveExplain)
	return mux
}

// rawData returns the objects of the current snapshot.
func (g *Gateway) rawData() RawData {
	now := g.current.Load()
	from := view.Source{Static: &g.static, Config: now.config, Down: g.objects.Down, TCPDown: g.objects.TCPDown,
		Failures: g.objects.LastFailures, Certificates: now.shownCertificates()}
	from.Objects = slices.Clone(now.statuses)
	for _, name := range slices.Sorted(maps.Keys(g.internal)) {
		from.Objects = append(from.Objects, status.Status{Kind: "service", Name: name, State: status.Enabled})
	}
	return view.Of(from)
}
