package admin

import (
	"context"
	"net/http"
	"net/url"

	"fairlead/internal/api"
)

// readStats returns the traffic counters.
const readStats Query[api.Stats] = "/v1/stats"

// StatsCalls are the calls of the daemon for traffic counters.
type StatsCalls interface {
	Stats(context.Context) api.Stats
	// Fill returns only how full the kernel's tables are.
	Fill() api.Stats
}

// statsHandlers registers the handler of traffic counters.
func statsHandlers(mux *http.ServeMux, d StatsCalls) {
	readStats.handleParts(mux, func(ctx context.Context, part url.Values) api.Stats {
		if part.Has(paramWrong) {
			return d.Fill()
		}
		return d.Stats(ctx)
	})
}

// Stats returns the traffic counters of the daemon's networks.
func (c *Client) Stats(ctx context.Context) (api.Stats, error) { return readStats.Do(ctx, c) }

// Fill returns how full the kernel's tables are. An older daemon returns all counters.
func (c *Client) Fill(ctx context.Context) (api.Stats, error) {
	return readStats.DoPart(ctx, c, paramWrong)
}
