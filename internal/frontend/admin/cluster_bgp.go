package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
)

// The requests for the routers to which the cluster announces addresses.
const (
	ListBGPSessions Query[ClusterBGPSessions]                   = "/v1/cluster/bgp"
	AddBGPPeer      Call[api.ClusterBGPPeer, api.Result]        = "/v1/cluster/bgp/add"
	RemoveBGPPeer   Call[api.ClusterBGPPeerRequest, api.Result] = "/v1/cluster/bgp/remove"
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
	AddBGPPeer.handle(mux, d.AddPeer)
	RemoveBGPPeer.handle(mux, d.RemovePeer)
	ListBGPSessions.handle(mux, func() (ClusterBGPSessions, error) {
		all, err := d.Peers()
		return ClusterBGPSessions{all}, err
	})
}
