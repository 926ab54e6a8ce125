package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
)

// The paths of the cluster's virtual addresses.
const (
	pathClusterAddresses = "/v1/cluster/addresses"
	pathAddAddress       = "/v1/cluster/addresses/add"
	pathMoveAddress      = "/v1/cluster/addresses/move"
	pathRemoveAddress    = "/v1/cluster/addresses/remove"
	pathClaimAddress     = "/v1/cluster/addresses/claim"
)

// ClusterAddressCalls are the calls for virtual addresses of the cluster. *addresses.Addresses implements
// them.
type ClusterAddressCalls interface {
	AddAddress(ctx context.Context, spec api.ClusterAddressSpec) (api.Result, error)
	MoveAddress(ctx context.Context, r api.ClusterAddressRequest) (api.Result, error)
	RemoveAddress(ctx context.Context, r api.ClusterAddressRequest) (api.Result, error)
	ClaimAddress(ctx context.Context, r api.ClusterAddressRequest) (api.Result, error)
	List() ([]api.ClusterAddress, error)
}

// ClusterAddresses are the virtual addresses of the cluster.
type ClusterAddresses struct {
	Addresses []api.ClusterAddress `json:"addresses"`
}

// clusterAddressHandlers registers the handlers of the cluster's virtual addresses.
func clusterAddressHandlers(mux *http.ServeMux, d ClusterAddressCalls) {
	post(mux, pathAddAddress, d.AddAddress)
	post(mux, pathMoveAddress, d.MoveAddress)
	post(mux, pathRemoveAddress, d.RemoveAddress)
	post(mux, pathClaimAddress, d.ClaimAddress)
	mux.HandleFunc("GET "+pathClusterAddresses, func(w http.ResponseWriter, _ *http.Request) {
		all, err := d.List()
		reply(w, ClusterAddresses{all}, err)
	})
}

// AddAddress adds a virtual address to the cluster.
func (c *Client) AddAddress(ctx context.Context, spec api.ClusterAddressSpec) (api.Result, error) {
	return c.post(ctx, pathAddAddress, spec)
}

// MoveAddress moves a virtual address to another node.
func (c *Client) MoveAddress(ctx context.Context, r api.ClusterAddressRequest) (api.Result, error) {
	return c.post(ctx, pathMoveAddress, r)
}

// RemoveAddress removes a virtual address from the cluster.
func (c *Client) RemoveAddress(ctx context.Context, r api.ClusterAddressRequest) (api.Result, error) {
	return c.post(ctx, pathRemoveAddress, r)
}

// ClaimAddress makes this host take a virtual address whose holder is down.
func (c *Client) ClaimAddress(ctx context.Context, r api.ClusterAddressRequest) (api.Result, error) {
	return c.post(ctx, pathClaimAddress, r)
}

// ClusterAddresses returns the virtual addresses of the cluster.
func (c *Client) ClusterAddresses(ctx context.Context) ([]api.ClusterAddress, error) {
	var all ClusterAddresses
	err := c.call(ctx, http.MethodGet, pathClusterAddresses, nil, &all)
	return all.Addresses, err
}
