package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// The requests for the cluster's networks.
const (
	CreateClusterNetwork Call[ClusterNetworkRequest, api.Result] = "/v1/cluster/networks/create"
	RemoveClusterNetwork Call[NetworkName, api.Result]           = "/v1/cluster/networks/remove"
)

// ClusterNetworkCalls are the calls for networks of the cluster.
type ClusterNetworkCalls interface {
	CreateNetwork(ctx context.Context, n model.Network, blockBits []int) error
	RemoveNetwork(ctx context.Context, name string) error
}

// ClusterNetworkRequest adds a network to the cluster.
type ClusterNetworkRequest struct {
	model.Network
	// BlockBits are the prefix lengths of blocks, in the order of the subnets.
	BlockBits []int `json:"blockBits,omitempty"`
}

// clusterNetworkHandlers registers the handlers of the cluster's networks.
func clusterNetworkHandlers(mux *http.ServeMux, d ClusterNetworkCalls) {
	handleChange(mux, CreateClusterNetwork, func(ctx context.Context, r ClusterNetworkRequest) error {
		return d.CreateNetwork(ctx, r.Network, r.BlockBits)
	})
	handleChange(mux, RemoveClusterNetwork, func(ctx context.Context, r NetworkName) error {
		return d.RemoveNetwork(ctx, r.Name)
	})
}
