package admin

import (
	"context"
	"encoding/json"
	"net/http"

	"fairlead/internal/api"
)

// pathGateway is the prefix of the paths of the gateway's own API.
const pathGateway = "/v1/gateway"

// GatewayCalls ask the daemon's gateway.
type GatewayCalls interface {
	// Ask returns what the gateway's API answers for a path and query, such as
	// /api/rawdata. Returns a Fault with code NotFound if no gateway runs.
	Ask(ctx context.Context, path string) (json.RawMessage, error)
}

// gatewayHandlers registers the handler of the gateway's API.
func gatewayHandlers(mux *http.ServeMux, d GatewayCalls) {
	mux.HandleFunc("GET "+pathGateway+"/{path...}", func(w http.ResponseWriter, r *http.Request) {
		if d == nil {
			refuse(w, api.Faultf(api.NotFound, "this daemon runs no gateway"))
			return
		}
		path := "/" + r.PathValue("path")
		if r.URL.RawQuery != "" {
			path += "?" + r.URL.RawQuery
		}
		text, err := d.Ask(r.Context(), path)
		if err != nil {
			refuse(w, err)
			return
		}
		answer(w, http.StatusOK, text)
	})
}

// Gateway reads a path of the API of the daemon's gateway, such as /api/rawdata. Returns a
// *api.Fault with the code api.NotFound if the daemon runs no gateway.
func (c *Client) Gateway(ctx context.Context, path string, into any) error {
	return c.call(ctx, http.MethodGet, pathGateway+path, nil, into)
}
