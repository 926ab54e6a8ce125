package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
)

// pathHistory returns the figures of the last hour.
const pathHistory = "/v1/history"

// HistoryCalls are the calls of the daemon for the figures of the last hour.
type HistoryCalls interface {
	History() api.History
}

// historyHandlers registers the handler of the figures of the last hour.
func historyHandlers(mux *http.ServeMux, d HistoryCalls) {
	mux.HandleFunc("GET "+pathHistory, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, d.History())
	})
}

// History returns the figures of the last hour.
func (c *Client) History(ctx context.Context) (h api.History, err error) {
	err = c.call(ctx, http.MethodGet, pathHistory, nil, &h)
	return h, err
}
