package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// The requests for publishes.
const (
	Publish   Call[api.PublishRequest, api.Result] = "/v1/publish"
	Unpublish Call[api.PublishRequest, api.Result] = "/v1/unpublish"
)

// PublishCalls are the calls of the daemon for publishes.
type PublishCalls interface {
	Publish(context.Context, api.PublishRequest) (api.Result, error)
	Unpublish(context.Context, api.PublishRequest) (api.Result, error)
}

// publishHandlers registers the handlers of publishes.
func publishHandlers(mux *http.ServeMux, d PublishCalls) {
	Publish.handle(mux, func(ctx context.Context, r api.PublishRequest) (api.Result, error) {
		for i := range r.Publishes {
			r.Publishes[i].Origin = model.FromCommand
		}
		return d.Publish(ctx, r)
	})
	Unpublish.handle(mux, d.Unpublish)
}
