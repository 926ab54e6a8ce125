// Package admin is the daemon's API for the administrator of its host: HTTP/1.1 with
// JSON over a unix socket that only root can use. It turns requests into calls of
// the daemon and contains no policy.
//
// Every path begins with the API's version. A request is one JSON object; unknown
// fields are refused. A response is one JSON object. The response to a failed
// request is an Error, with a code for programs and a message for people.
//
//	POST /v1/attach           api.AttachRequest  → api.Result
//	POST /v1/detach           api.DetachRequest  → api.Result
//	POST /v1/publish          api.PublishRequest → api.Result
//	POST /v1/unpublish        api.PublishRequest → api.Result
//	POST /v1/networks/create  NetworkRequest     → api.Result
//	POST /v1/networks/remove  NetworkName        → api.Result
//	POST /v1/networks/check   NetworkName        → PeerPaths
//	POST /v1/services/set     api.ServiceRequest → api.Result
//	POST /v1/services/remove  ServiceName        → api.Result
//	POST /v1/services/real    api.RealRequest    → api.Result
//	POST /v1/apply            SpecRequest        → api.Result
//	GET  /v1/state            → State
//	GET  /v1/attachments      → Attachments
//	GET  /v1/networks         → Networks
//	GET  /v1/services         → Services
//	GET  /v1/services/{name}  → api.ServiceView
//	GET  /v1/events           → Events; with ?follow, one api.Event per line
//	GET  /v1/stats            → api.Stats
package admin

import (
	"context"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// Socket is the default path of the daemon's socket.
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

// Daemon is the part of the daemon that the API calls. *daemon.Daemon implements it.
type Daemon interface {
	Attach(context.Context, api.AttachRequest) (api.Result, error)
	Detach(context.Context, api.DetachRequest) (api.Result, error)
	Publish(context.Context, api.PublishRequest) (api.Result, error)
	Unpublish(context.Context, api.PublishRequest) (api.Result, error)
	CreateNetwork(n model.Network, dry bool) (api.Result, error)
	RemoveNetwork(name string) (api.Result, error)
	CheckNetwork(ctx context.Context, name string) ([]api.PeerPathView, error)
	SetService(api.ServiceRequest) (api.Result, error)
	RemoveService(name string, dry bool) (api.Result, error)
	ChangeReal(api.RealRequest) (api.Result, error)
	Services() []api.ServiceView
	Service(name string) (api.ServiceView, error)
	Apply(ctx context.Context, spec api.Spec, dry bool) (api.Result, error)
	State() (api.Spec, []string)
	Attachments() []api.View
	Networks() []model.Network
	Events() []api.Event
	FollowEvents(context.Context) <-chan api.Event
	Stats(context.Context) api.Stats
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

// Attachments are all attachments, sorted by name.
type Attachments struct {
	Attachments []api.View `json:"attachments"`
}

// Networks are all networks, sorted by name.
type Networks struct {
	Networks []model.Network `json:"networks"`
}

// SpecRequest applies the declarations of a set of files.
type SpecRequest struct {
	api.Spec
	DryRun bool `json:"dryRun,omitempty"`
}

// State is the desired state as a Spec.
type State struct {
	api.Spec
	// Notes describe what a Spec cannot express.
	Notes []string `json:"notes,omitempty"`
}

// Error is the response to a request that failed.
type Error struct {
	Code api.Code `json:"code"`
	// Message has one line per part of the error.
	Message string `json:"message"`
	// Mistakes are the parts of the message, if it is about a Spec.
	Mistakes api.Mistakes `json:"mistakes,omitempty"`
}

// Forbidden is the code for callers that are not root.
const Forbidden api.Code = "forbidden"
