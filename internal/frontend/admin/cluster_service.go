package admin

import (
	"context"
	"net/http"
	"net/url"

	"fairlead/internal/api"
)

// The requests for the cluster's services.
const (
	SetClusterService    Call[api.ClusterServiceRequest, api.Result] = "/v1/cluster/services/set"
	RemoveClusterService Call[ServiceName, api.Result]               = "/v1/cluster/services/remove"
	pathClusterServices                                              = "/v1/cluster/services"
)

// ClusterServiceCalls are the calls for virtual services of the cluster.
type ClusterServiceCalls interface {
	SetService(ctx context.Context, r api.ClusterServiceRequest) error
	RemoveService(ctx context.Context, name string) error
	Service(ctx context.Context, name string) (api.ClusterService, error)
}

// clusterServiceHandlers registers the handlers of the cluster's services.
func clusterServiceHandlers(mux *http.ServeMux, d ClusterServiceCalls) {
	handleChange(mux, SetClusterService, d.SetService)
	handleChange(mux, RemoveClusterService, func(ctx context.Context, r ServiceName) error {
		return d.RemoveService(ctx, r.Name)
	})
	mux.HandleFunc("GET "+pathClusterServices+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		v, err := d.Service(r.Context(), r.PathValue("name"))
		reply(w, v, err)
	})
}

// ClusterService returns a virtual service of the cluster as it was declared.
func (c *Client) ClusterService(ctx context.Context, name string) (v api.ClusterService, err error) {
	err = c.call(ctx, http.MethodGet, pathClusterServices+"/"+url.PathEscape(name), nil, &v)
	return v, err
}
