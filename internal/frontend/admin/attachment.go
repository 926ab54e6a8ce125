package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// The paths of attachments.
const (
	pathAttach      = "/v1/attach"
	pathDetach      = "/v1/detach"
	pathAttachments = "/v1/attachments"
)

// AttachmentCalls are the calls of the daemon for attachments.
type AttachmentCalls interface {
	Attach(context.Context, api.AttachRequest) (api.Result, error)
	Detach(context.Context, api.DetachRequest) (api.Result, error)
	Attachments() []api.View
}

// Attachments are all attachments, sorted by name.
type Attachments struct {
	Attachments []api.View `json:"attachments"`
}

// attachmentHandlers registers the handlers of attachments.
func attachmentHandlers(mux *http.ServeMux, d AttachmentCalls) {
	post(mux, pathAttach, func(ctx context.Context, r api.AttachRequest) (api.Result, error) {
		return d.Attach(ctx, byCommand(r))
	})
	post(mux, pathDetach, d.Detach)
	mux.HandleFunc("GET "+pathAttachments, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, Attachments{d.Attachments()})
	})
}

// byCommand returns the request with publishes of a command, whatever origin the client names.
func byCommand(r api.AttachRequest) api.AttachRequest {
	for i := range r.Publishes {
		r.Publishes[i].Origin = model.FromCommand
	}
	return r
}

// Attach attaches a sandbox.
func (c *Client) Attach(ctx context.Context, r api.AttachRequest) (api.Result, error) {
	return c.post(ctx, pathAttach, r)
}

// Detach removes attachments.
func (c *Client) Detach(ctx context.Context, r api.DetachRequest) (api.Result, error) {
	return c.post(ctx, pathDetach, r)
}

// Attachments returns all attachments.
func (c *Client) Attachments(ctx context.Context) ([]api.View, error) {
	var a Attachments
	err := c.call(ctx, http.MethodGet, pathAttachments, nil, &a)
	return a.Attachments, err
}
