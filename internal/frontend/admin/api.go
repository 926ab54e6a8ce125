// Package admin is the daemon's API for its host's administrator: HTTP/1.1 with
// JSON over a unix socket that only root can use. It turns requests into calls
// of the daemon and decides nothing.
//
// Every path begins with the API's version. A request is one JSON object with
// no other fields than are known; an answer is one JSON object, and that of a
// failure is an Error, whose code is for programs and whose message for
// people.
//
//	POST /v1/attach           daemon.AttachRequest  → daemon.Result
//	POST /v1/detach           daemon.DetachRequest  → daemon.Result
//	POST /v1/publish          daemon.PublishRequest → daemon.Result
//	POST /v1/unpublish        daemon.PublishRequest → daemon.Result
//	POST /v1/networks/create  NetworkRequest        → daemon.Result
//	POST /v1/networks/remove  NetworkName           → daemon.Result
//	POST /v1/networks/check   NetworkName           → Ways
//	POST /v1/services/set     daemon.ServiceRequest → daemon.Result
//	POST /v1/services/remove  ServiceName           → daemon.Result
//	POST /v1/services/real    daemon.RealRequest    → daemon.Result
//	POST /v1/apply            SpecRequest           → daemon.Result
//	GET  /v1/state            → State
//	GET  /v1/attachments      → Attachments
//	GET  /v1/networks         → Networks
//	GET  /v1/services         → Services
//	GET  /v1/services/{name}  → daemon.ServiceView
//	GET  /v1/events           → Events; with ?follow, a daemon.Event a line
//	GET  /v1/stats            → daemon.Stats
package admin

import (
	"context"

	"fairlead/internal/daemon"
	"fairlead/internal/model"
)

// Socket is where a host's daemon listens unless it is told otherwise.
const Socket = "/run/fairlead/fairlead.sock"

// The paths.
const (
	pathAttach        = "/v1/attach"
	pathDetach        = "/v1/detach"
	pathPublish       = "/v1/publish"
	pathUnpublish     = "/v1/unpublish"
	pathCreateNetwork = "/v1/networks/create"
	pathRemoveNetwork = "/v1/networks/remove"
	pathCheckNetwork  = "/v1/networks/check"
	pathApply         = "/v1/apply"
	pathState         = "/v1/state"
	pathAttachments   = "/v1/attachments"
	pathNetworks      = "/v1/networks"
	pathStats         = "/v1/stats"
)

// Daemon is what is behind the API; *daemon.Daemon has it.
type Daemon interface {
	Attach(context.Context, daemon.AttachRequest) (daemon.Result, error)
	Detach(context.Context, daemon.DetachRequest) (daemon.Result, error)
	Publish(context.Context, daemon.PublishRequest) (daemon.Result, error)
	Unpublish(context.Context, daemon.PublishRequest) (daemon.Result, error)
	CreateNetwork(n model.Network, dry bool) (daemon.Result, error)
	RemoveNetwork(name string) (daemon.Result, error)
	CheckNetwork(ctx context.Context, name string) ([]daemon.PeerPathView, error)
	SetService(daemon.ServiceRequest) (daemon.Result, error)
	RemoveService(name string, dry bool) (daemon.Result, error)
	ChangeReal(daemon.RealRequest) (daemon.Result, error)
	Services() []daemon.ServiceView
	Service(name string) (daemon.ServiceView, error)
	Apply(ctx context.Context, spec daemon.Spec, dry bool) (daemon.Result, error)
	State() (daemon.Spec, []string)
	Attachments() []daemon.View
	Networks() []model.Network
	Events() []daemon.Event
	FollowEvents(context.Context) <-chan daemon.Event
	Stats(context.Context) daemon.Stats
}

// NetworkRequest defines a network.
type NetworkRequest struct {
	model.Network
	DryRun bool `json:"dryRun,omitempty"`
}

// NetworkName names a network.
type NetworkName struct {
	Name string `json:"name"`
}

// PeerPaths are what a check of an overlay found out.
type PeerPaths struct {
	Paths []daemon.PeerPathView `json:"paths"`
}

// Attachments are all attachments, by name.
type Attachments struct {
	Attachments []daemon.View `json:"attachments"`
}

// Networks are all networks, by name.
type Networks struct {
	Networks []model.Network `json:"networks"`
}

// SpecRequest declares what there shall be of a set of files.
type SpecRequest struct {
	daemon.Spec
	DryRun bool `json:"dryRun,omitempty"`
}

// State is what there is, as a Spec declares it.
type State struct {
	daemon.Spec
	// Notes say what a Spec cannot hold.
	Notes []string `json:"notes,omitempty"`
}

// Error is the answer when a request fails.
type Error struct {
	Code daemon.Code `json:"code"`
	// Message has a line for each part of the error.
	Message string `json:"message"`
	// Mistakes are the parts of the message, if it is about a Spec.
	Mistakes daemon.Mistakes `json:"mistakes,omitempty"`
}

// Forbidden is the code for callers who are not root.
const Forbidden daemon.Code = "forbidden"
