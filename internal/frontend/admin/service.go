package admin

import (
	"context"
	"net/http"
	"net/url"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// The paths of virtual services.
const (
	pathSetService    = "/v1/services/set"
	pathRemoveService = "/v1/services/remove"
	pathReal          = "/v1/services/real"
	pathServices      = "/v1/services"
)

// ServiceCalls are the calls of the daemon for virtual services.
type ServiceCalls interface {
	SetService(api.ServiceRequest) (api.Result, error)
	RemoveService(name string, dry bool) (api.Result, error)
	ChangeReal(api.RealRequest) (api.Result, error)
	Services() []api.ServiceView
	Service(name string) (api.ServiceView, error)
}

// ServiceName names a virtual service to be removed.
type ServiceName struct {
	Name   string `json:"name"`
	DryRun bool   `json:"dryRun,omitempty"`
}

// Services are all virtual services, sorted by name.
type Services struct {
	Services []api.ServiceView `json:"services"`
}

// serviceHandlers registers the handlers of virtual services.
func serviceHandlers(mux *http.ServeMux, d ServiceCalls) {
	post(mux, pathSetService, func(_ context.Context, r api.ServiceRequest) (api.Result, error) {
		r.Origin = model.FromCommand
		return d.SetService(r)
	})
	post(mux, pathRemoveService, func(_ context.Context, r ServiceName) (api.Result, error) {
		return d.RemoveService(r.Name, r.DryRun)
	})
	post(mux, pathReal, func(_ context.Context, r api.RealRequest) (api.Result, error) {
		return d.ChangeReal(r)
	})
	mux.HandleFunc("GET "+pathServices, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, Services{d.Services()})
	})
	mux.HandleFunc("GET "+pathServices+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		v, err := d.Service(r.PathValue("name"))
		if err != nil {
			refuse(w, err)
			return
		}
		answer(w, http.StatusOK, v)
	})
}

// SetService creates or changes a virtual service. Returns a *api.Fault with the
// code api.Conflict if the service differs from r.Was, or exists although r.Create
// is set.
func (c *Client) SetService(ctx context.Context, r api.ServiceRequest) (api.Result, error) {
	return c.post(ctx, pathSetService, r)
}

// RemoveService removes a virtual service.
func (c *Client) RemoveService(ctx context.Context, name string, dry bool) (api.Result, error) {
	return c.post(ctx, pathRemoveService, ServiceName{name, dry})
}

// ChangeReal drains, enables or removes a real server.
func (c *Client) ChangeReal(ctx context.Context, r api.RealRequest) (api.Result, error) {
	return c.post(ctx, pathReal, r)
}

// Services returns all virtual services.
func (c *Client) Services(ctx context.Context) ([]api.ServiceView, error) {
	var s Services
	err := c.call(ctx, http.MethodGet, pathServices, nil, &s)
	return s.Services, err
}

// Service returns one virtual service. Returns a *api.Fault with the code
// api.NotFound if it does not exist.
func (c *Client) Service(ctx context.Context, name string) (v api.ServiceView, err error) {
	err = c.call(ctx, http.MethodGet, pathServices+"/"+url.PathEscape(name), nil, &v)
	return v, err
}
