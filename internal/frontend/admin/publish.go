package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// The paths of publishes.
const (
	pathPublish   = "/v1/publish"
	pathUnpublish = "/v1/unpublish"
)

// PublishCalls are the calls of the daemon for publishes.
type PublishCalls interface {
	Publish(context.Context, api.PublishRequest) (api.Result, error)
	Unpublish(context.Context, api.PublishRequest) (api.Result, error)
}

// publishHandlers registers the handlers of publishes.
func publishHandlers(mux *http.ServeMux, d PublishCalls) {
	post(mux, pathPublish, func(ctx context.Context, r api.PublishRequest) (api.Result, error) {
		for i := range r.Publishes {
			r.Publishes[i].Origin = model.FromCommand
		}
		return d.Publish(ctx, r)
	})
	post(mux, pathUnpublish, d.Unpublish)
}

// Publish publishes ports of an attachment.
func (c *Client) Publish(ctx context.Context, r api.PublishRequest) (api.Result, error) {
	return c.post(ctx, pathPublish, r)
}

// Unpublish removes publishes of an attachment.
func (c *Client) Unpublish(ctx context.Context, r api.PublishRequest) (api.Result, error) {
	return c.post(ctx, pathUnpublish, r)
}
