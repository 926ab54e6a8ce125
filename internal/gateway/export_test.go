package gateway

import "net/http"

// Handler returns the handler of an entry point.
func (g *Gateway) Handler(entry string) (http.Handler, error) {
	for _, e := range g.static.EntryPoints {
		if e.Name == entry {
			return g.newEntry(e)
		}
	}
	return http.NotFoundHandler(), nil
}
