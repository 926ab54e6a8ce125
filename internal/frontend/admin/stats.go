package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
)

// pathStats returns the traffic counters.
const pathStats = "/v1/stats"

// StatsCalls are the calls of the daemon for traffic counters.
type StatsCalls interface {
	Stats(context.Context) api.Stats
}

// statsHandlers registers the handler of traffic counters.
func statsHandlers(mux *http.ServeMux, d StatsCalls) {
	mux.HandleFunc("GET "+pathStats, func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, d.Stats(r.Context()))
	})
}

// Stats returns the traffic counters of the daemon's networks.
func (c *Client) Stats(ctx context.Context) (s api.Stats, err error) {
	err = c.call(ctx, http.MethodGet, pathStats, nil, &s)
	return s, err
}
