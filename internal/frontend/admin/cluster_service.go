package admin

import (
	"context"
	"net/http"
	"net/url"

	"fairlead/internal/api"
)

// The paths of the cluster's services.
const (
	pathSetClusterService    = "/v1/cluster/services/set"
	pathRemoveClusterService = "/v1/cluster/services/remove"
	pathClusterServices      = "/v1/cluster/services"
)

// ClusterServiceCalls are the calls for virtual services of the cluster.
type ClusterServiceCalls interface {
	SetService(ctx context.Context, r api.ClusterServiceRequest) error
	RemoveService(ctx context.Context, name string) error
	Service(ctx context.Context, name string) (api.ClusterService, error)
}

// clusterServiceHandlers registers the handlers of the cluster's services.
func clusterServiceHandlers(mux *http.ServeMux, d ClusterServiceCalls) {
	post(mux, pathSetClusterService, func(ctx context.Context, r api.ClusterServiceRequest) (api.Result, error) {
		return changed(d.SetService(ctx, r))
	})
	post(mux, pathRemoveClusterService, func(ctx context.Context, r ServiceName) (api.Result, error) {
		return changed(d.RemoveService(ctx, r.Name))
	})
	mux.HandleFunc("GET "+pathClusterServices+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		v, err := d.Service(r.Context(), r.PathValue("name"))
		reply(w, v, err)
	})
}

// SetClusterService creates or changes a virtual service of the cluster. Returns a *api.Fault with the
// code api.Conflict if the service differs from r.Was.
func (c *Client) SetClusterService(ctx context.Context, r api.ClusterServiceRequest) (api.Result, error) {
	return c.post(ctx, pathSetClusterService, r)
}

// RemoveClusterService removes a virtual service from the cluster.
func (c *Client) RemoveClusterService(ctx context.Context, name string) (api.Result, error) {
	return c.post(ctx, pathRemoveClusterService, ServiceName{Name: name})
}

// ClusterService returns a virtual service of the cluster as it was declared.
func (c *Client) ClusterService(ctx context.Context, name string) (v api.ClusterService, err error) {
	err = c.call(ctx, http.MethodGet, pathClusterServices+"/"+url.PathEscape(name), nil, &v)
	return v, err
}
