package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// The paths of the cluster's networks.
const (
	pathCreateClusterNetwork = "/v1/cluster/networks/create"
	pathRemoveClusterNetwork = "/v1/cluster/networks/remove"
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
	post(mux, pathCreateClusterNetwork, func(ctx context.Context, r ClusterNetworkRequest) (api.Result, error) {
		err := d.CreateNetwork(ctx, r.Network, r.BlockBits)
		return api.Result{Changed: err == nil}, err
	})
	post(mux, pathRemoveClusterNetwork, func(ctx context.Context, r NetworkName) (api.Result, error) {
		err := d.RemoveNetwork(ctx, r.Name)
		return api.Result{Changed: err == nil}, err
	})
}

// CreateClusterNetwork adds a network to the cluster.
func (c *Client) CreateClusterNetwork(ctx context.Context, n model.Network, blockBits []int) (api.Result, error) {
	return c.post(ctx, pathCreateClusterNetwork, ClusterNetworkRequest{n, blockBits})
}

// RemoveClusterNetwork removes a network from the cluster.
func (c *Client) RemoveClusterNetwork(ctx context.Context, name string) (api.Result, error) {
	return c.post(ctx, pathRemoveClusterNetwork, NetworkName{name})
}
