package gateway

import (
	"net/http"
	"slices"

	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/view"
	"fairlead/internal/model/gateway"
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
	from := view.Source{Static: &g.static, Config: now.config, Down: g.downServers, TCPDown: g.downTCPServers,
		Failures: g.lastFailures, Certificates: now.shownCertificates()}
	from.Objects = slices.Clone(now.statuses)
	for _, name := range SortedKeys(g.kept.internal) { // the first build has made them
		from.Objects = append(from.Objects, status.Status{Kind: "service", Name: name, State: status.Enabled})
	}
	return view.Of(from)
}

// downServers returns the URLs of an HTTP service's servers that are down.
func (g *Gateway) downServers(service string) (down []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if built := g.kept.services[service]; built != nil {
		for s, c := range built.state.Servers() {
			if !c.IsUp() {
				down = append(down, s.String())
			}
		}
	}
	return down
}

// lastFailures returns the last failures of an HTTP service's servers, by their URLs as shown.
func (g *Gateway) lastFailures(service string) map[string]shown.Failure {
	g.mu.Lock()
	defer g.mu.Unlock()
	built := g.kept.services[service]
	if built == nil {
		return nil
	}
	var all map[string]shown.Failure
	for s, c := range built.state.Servers() {
		last, url := c.Last(), gateway.ShownURL(s.String())
		if last == nil || last.At.Before(all[url].At) {
			continue
		}
		if all == nil {
			all = map[string]shown.Failure{}
		}
		all[url] = shown.Failure(*last)
	}
	return all
}

// downTCPServers returns the addresses of a TCP service's servers that are down.
func (g *Gateway) downTCPServers(service string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.streams.Down(service)
}
