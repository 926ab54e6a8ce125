package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// The requests for virtual services. SetService returns a *api.Fault with the code api.Conflict if the service differs
// from Was, or exists although Create is set.
const (
	SetService    Call[api.ServiceRequest, api.Result] = "/v1/services/set"
	RemoveService Call[ServiceName, api.Result]        = "/v1/services/remove"
	ChangeReal    Call[api.RealRequest, api.Result]    = "/v1/services/real"
	listServices  Query[Services]                      = "/v1/services"
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
	// Total is set if these are only the first ones.
	Total *api.ServiceTotal `json:"total,omitempty"`
}

// serviceHandlers registers the handlers of virtual services.
func serviceHandlers(mux *http.ServeMux, d ServiceCalls) {
	SetService.handle(mux, func(_ context.Context, r api.ServiceRequest) (api.Result, error) {
		r.Origin = model.FromCommand
		return d.SetService(r)
	})
	RemoveService.handle(mux, func(_ context.Context, r ServiceName) (api.Result, error) {
		return d.RemoveService(r.Name, r.DryRun)
	})
	ChangeReal.handle(mux, func(_ context.Context, r api.RealRequest) (api.Result, error) {
		return d.ChangeReal(r)
	})
	listServices.handleParts(mux, func(_ context.Context, part url.Values) Services {
		all := d.Services()
		if n, err := strconv.Atoi(part.Get(paramFirst)); err == nil {
			first := api.FirstServicesOf(all, n)
			return Services{first.Services, &first.Total}
		}
		if part.Has(paramWrong) {
			all = api.WrongServices(all)
		}
		return Services{Services: all}
	})
	mux.HandleFunc("GET "+string(listServices)+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		v, err := d.Service(r.PathValue("name"))
		reply(w, v, err)
	})
}

// Service returns one virtual service. Returns a *api.Fault with the code
// api.NotFound if it does not exist.
func (c *Client) Service(ctx context.Context, name string) (v api.ServiceView, err error) {
	err = c.call(ctx, http.MethodGet, string(listServices)+"/"+url.PathEscape(name), nil, &v)
	return v, err
}

// Services returns all virtual services.
func (c *Client) Services(ctx context.Context) ([]api.ServiceView, error) {
	s, err := listServices.Do(ctx, c)
	return s.Services, err
}

// WrongServices returns the services that are not up or have a problem or a real server that is not up, with those
// real servers only. An older daemon returns all.
func (c *Client) WrongServices(ctx context.Context) ([]api.ServiceView, error) {
	s, err := listServices.DoPart(ctx, c, paramWrong)
	return s.Services, err
}

// FirstServices returns what a page of n rows shows first of services and of real servers, with how many there are.
// An older daemon returns all.
func (c *Client) FirstServices(ctx context.Context, n int) (api.FirstServices, error) {
	s, err := listServices.DoPart(ctx, c, fmt.Sprint(paramFirst, "=", n))
	got := api.FirstServicesOf(s.Services, n)
	if err != nil || s.Total == nil {
		return got, err
	}
	// The total is what a page says and takes as the number of rows.
	if t, rows := *s.Total, max(0, n); got.Total.Reals != min(rows, t.Reals) || got.Total.Services > t.Services ||
		got.Total.Services < min(rows, t.Services) {
		return api.FirstServices{}, fmt.Errorf("read the first %d of %d services and %d real servers: the daemon returned "+
			"%d and %d: use the dashboard of its version", n, t.Services, t.Reals, got.Total.Services, got.Total.Reals)
	}
	return api.FirstServices{Services: s.Services, Total: *s.Total}, nil
}
