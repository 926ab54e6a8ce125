package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// The requests for networks.
const (
	CreateNetwork Call[NetworkRequest, api.Result] = "/v1/networks/create"
	RemoveNetwork Call[NetworkName, api.Result]    = "/v1/networks/remove"
	CheckNetwork  Call[NetworkName, PeerPaths]     = "/v1/networks/check"
	ListNetworks  Query[Networks]                  = "/v1/networks"
)

// NetworkCalls are the calls of the daemon for networks.
type NetworkCalls interface {
	CreateNetwork(n model.Network, dry bool) (api.Result, error)
	RemoveNetwork(name string) (api.Result, error)
	CheckNetwork(ctx context.Context, name string) ([]api.PeerPathView, error)
	Networks() []model.Network
	// Unavailable returns why networks cannot exist on this host at present, by name.
	Unavailable() map[string]string
	// Outbound returns what was chosen for networks with outbound auto and why, by name.
	Outbound() map[string]api.OutboundChoice
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
	// Outbound has what was chosen for networks with outbound auto and why, by name.
	Outbound map[string]api.OutboundChoice `json:"outbound,omitempty"`
}

// State returns the state of a network: known, with what was chosen for outbound auto and why, or why the network is
// unavailable, or that the host has not followed the choice.
func (n Networks) State(name, known string) string {
	if why := n.Unavailable[name]; why != "" {
		return "unavailable: " + why
	}
	if choice, ok := n.Outbound[name]; ok {
		if choice.Unapplied != "" {
			known = "failed"
		}
		return known + "; " + choice.String()
	}
	return known
}

// Failed reports whether a network is unavailable, or its host has not followed what was chosen for outbound auto.
func (n Networks) Failed(name string) bool {
	return n.Unavailable[name] != "" || n.Outbound[name].Unapplied != ""
}

// networkHandlers registers the handlers of networks.
func networkHandlers(mux *http.ServeMux, d NetworkCalls) {
	CreateNetwork.handle(mux, func(_ context.Context, r NetworkRequest) (api.Result, error) {
		r.Origin = model.FromCommand
		return d.CreateNetwork(r.Network, r.DryRun)
	})
	RemoveNetwork.handle(mux, func(_ context.Context, r NetworkName) (api.Result, error) {
		return d.RemoveNetwork(r.Name)
	})
	CheckNetwork.handle(mux, func(ctx context.Context, r NetworkName) (PeerPaths, error) {
		paths, err := d.CheckNetwork(ctx, r.Name)
		return PeerPaths{paths}, err
	})
	ListNetworks.handle(mux, func() (Networks, error) {
		return Networks{d.Networks(), d.Unavailable(), d.Outbound()}, nil
	})
}
