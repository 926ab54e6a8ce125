package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// The paths of networks.
const (
	pathCreateNetwork = "/v1/networks/create"
	pathRemoveNetwork = "/v1/networks/remove"
	pathCheckNetwork  = "/v1/networks/check"
	pathNetworks      = "/v1/networks"
)

// NetworkCalls are the calls of the daemon for networks.
type NetworkCalls interface {
	CreateNetwork(n model.Network, dry bool) (api.Result, error)
	RemoveNetwork(name string) (api.Result, error)
	CheckNetwork(ctx context.Context, name string) ([]api.PeerPathView, error)
	Networks() []model.Network
	// Unavailable returns why networks cannot exist on this host at present, by name.
	Unavailable() map[string]string
}

// NetworkRequest creates or changes a network.
type NetworkRequest struct {
	model.Network
	DryRun bool `json:"dryRun,omitempty"`
}

// NetworkName names a network.
type NetworkName struct {
	Name string `json:"name"`
}

// PeerPaths are the results of an overlay's check, one per path to a peer.
type PeerPaths struct {
	Paths []api.PeerPathView `json:"paths"`
}

// Networks are all networks, sorted by name.
type Networks struct {
	Networks []model.Network `json:"networks"`
	// Unavailable has the reasons why networks cannot exist on this host at present, by name.
	Unavailable map[string]string `json:"unavailable,omitempty"`
}

// networkHandlers registers the handlers of networks.
func networkHandlers(mux *http.ServeMux, d NetworkCalls) {
	post(mux, pathCreateNetwork, func(_ context.Context, r NetworkRequest) (api.Result, error) {
		r.Origin = model.FromCommand
		return d.CreateNetwork(r.Network, r.DryRun)
	})
	post(mux, pathRemoveNetwork, func(_ context.Context, r NetworkName) (api.Result, error) {
		return d.RemoveNetwork(r.Name)
	})
	post(mux, pathCheckNetwork, func(ctx context.Context, r NetworkName) (PeerPaths, error) {
		paths, err := d.CheckNetwork(ctx, r.Name)
		return PeerPaths{paths}, err
	})
	mux.HandleFunc("GET "+pathNetworks, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, Networks{d.Networks(), d.Unavailable()})
	})
}

// CreateNetwork creates or changes a network.
func (c *Client) CreateNetwork(ctx context.Context, n model.Network, dry bool) (api.Result, error) {
	return c.post(ctx, pathCreateNetwork, NetworkRequest{n, dry})
}

// RemoveNetwork removes a network.
func (c *Client) RemoveNetwork(ctx context.Context, name string) (api.Result, error) {
	return c.post(ctx, pathRemoveNetwork, NetworkName{name})
}

// CheckNetwork checks an overlay's paths to its other hosts.
func (c *Client) CheckNetwork(ctx context.Context, name string) ([]api.PeerPathView, error) {
	var w PeerPaths
	err := c.call(ctx, http.MethodPost, pathCheckNetwork, NetworkName{name}, &w)
	return w.Paths, err
}

// Networks returns all networks.
func (c *Client) Networks(ctx context.Context) (n Networks, err error) {
	err = c.call(ctx, http.MethodGet, pathNetworks, nil, &n)
	return n, err
}
