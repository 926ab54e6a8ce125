package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
)

// The paths of the routers to which the cluster announces addresses.
const (
	pathClusterBGP    = "/v1/cluster/bgp"
	pathAddBGPPeer    = "/v1/cluster/bgp/add"
	pathRemoveBGPPeer = "/v1/cluster/bgp/remove"
)

// ClusterBGPCalls are the calls for routers to which the cluster announces addresses. *bgp.Announcer
// implements them.
type ClusterBGPCalls interface {
	AddPeer(ctx context.Context, p api.ClusterBGPPeer) (api.Result, error)
	RemovePeer(ctx context.Context, r api.ClusterBGPPeerRequest) (api.Result, error)
	Peers() ([]api.ClusterBGPSession, error)
}

// ClusterBGPSessions are the routers with the sessions of the node.
type ClusterBGPSessions struct {
	Sessions []api.ClusterBGPSession `json:"sessions"`
}

// clusterBGPHandlers registers the handlers of the cluster's routers.
func clusterBGPHandlers(mux *http.ServeMux, d ClusterBGPCalls) {
	post(mux, pathAddBGPPeer, d.AddPeer)
	post(mux, pathRemoveBGPPeer, d.RemovePeer)
	mux.HandleFunc("GET "+pathClusterBGP, func(w http.ResponseWriter, _ *http.Request) {
		all, err := d.Peers()
		reply(w, ClusterBGPSessions{all}, err)
	})
}

// AddBGPPeer adds a router to which the cluster announces addresses.
func (c *Client) AddBGPPeer(ctx context.Context, p api.ClusterBGPPeer) (api.Result, error) {
	return c.post(ctx, pathAddBGPPeer, p)
}

// RemoveBGPPeer removes a router.
func (c *Client) RemoveBGPPeer(ctx context.Context, r api.ClusterBGPPeerRequest) (api.Result, error) {
	return c.post(ctx, pathRemoveBGPPeer, r)
}

// ClusterBGPSessions returns the routers with the sessions of the node.
func (c *Client) ClusterBGPSessions(ctx context.Context) ([]api.ClusterBGPSession, error) {
	var all ClusterBGPSessions
	err := c.call(ctx, http.MethodGet, pathClusterBGP, nil, &all)
	return all.Sessions, err
}
