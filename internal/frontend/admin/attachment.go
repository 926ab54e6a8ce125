package admin

import (
	"context"
	"net/http"
	"net/url"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// The requests for attachments.
const (
	Attach          Call[api.AttachRequest, api.Result] = "/v1/attach"
	Detach          Call[api.DetachRequest, api.Result] = "/v1/detach"
	listAttachments Query[Attachments]                  = "/v1/attachments"
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
	Attach.handle(mux, func(ctx context.Context, r api.AttachRequest) (api.Result, error) {
		return d.Attach(ctx, byCommand(r))
	})
	Detach.handle(mux, d.Detach)
	listAttachments.handleParts(mux, func(_ context.Context, part url.Values) Attachments {
		all := d.Attachments()
		if part.Has(paramWrong) {
			all = api.WrongViews(all)
		}
		return Attachments{all}
	})
}

// byCommand returns the request with publishes of a command, whatever origin the client names.
func byCommand(r api.AttachRequest) api.AttachRequest {
	for i := range r.Publishes {
		r.Publishes[i].Origin = model.FromCommand
	}
	return r
}

// Attachments returns all attachments.
func (c *Client) Attachments(ctx context.Context) ([]api.View, error) {
	a, err := listAttachments.Do(ctx, c)
	return a.Attachments, err
}

// WrongAttachments returns the attachments that are broken or have a publish with a problem. An older daemon returns
// all.
func (c *Client) WrongAttachments(ctx context.Context) ([]api.View, error) {
	a, err := listAttachments.DoPart(ctx, c, paramWrong)
	return a.Attachments, err
}
