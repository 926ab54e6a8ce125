package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
)

// The requests for the cluster's virtual addresses. ClaimAddress makes this host take one whose holder is down.
const (
	ListAddresses Query[ClusterAddresses]                     = "/v1/cluster/addresses"
	AddAddress    Call[api.ClusterAddressSpec, api.Result]    = "/v1/cluster/addresses/add"
	MoveAddress   Call[api.ClusterAddressRequest, api.Result] = "/v1/cluster/addresses/move"
	RemoveAddress Call[api.ClusterAddressRequest, api.Result] = "/v1/cluster/addresses/remove"
	ClaimAddress  Call[api.ClusterAddressRequest, api.Result] = "/v1/cluster/addresses/claim"
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
	AddAddress.handle(mux, d.AddAddress)
	MoveAddress.handle(mux, d.MoveAddress)
	RemoveAddress.handle(mux, d.RemoveAddress)
	ClaimAddress.handle(mux, d.ClaimAddress)
	ListAddresses.handle(mux, func() (ClusterAddresses, error) {
		all, err := d.List()
		return ClusterAddresses{all}, err
	})
}
