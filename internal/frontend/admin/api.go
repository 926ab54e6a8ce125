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
//	POST /v1/cluster/init     api.ClusterInit    → api.Result
//	POST /v1/cluster/join     api.ClusterJoin    → api.Result
//	POST /v1/cluster/leave    api.ClusterNodeRequest → api.Result
//	POST /v1/cluster/drain    api.ClusterNodeRequest → api.Result
//	POST /v1/cluster/remove   api.ClusterNodeRequest → api.Result
//	POST /v1/cluster/host     api.ClusterHost    → api.Result
//	POST /v1/cluster/accept   {}                 → api.Result
//	POST /v1/cluster/etcd     api.EtcdAccess     → api.Result
//	POST /v1/cluster/tokens/create api.ClusterTokenRequest → api.ClusterToken
//	POST /v1/cluster/tokens/remove TokenID       → api.Result
//	GET  /v1/cluster/tokens   → ClusterTokens
//	GET  /v1/cluster          → api.ClusterStatus; with ?ask-nodes, what the other nodes answer, too
//	POST /v1/cluster/networks/create ClusterNetworkRequest → api.Result
//	POST /v1/cluster/networks/remove NetworkName → api.Result
//	POST /v1/cluster/addresses/add    api.ClusterAddressSpec    → api.Result
//	POST /v1/cluster/addresses/move   api.ClusterAddressRequest → api.Result
//	POST /v1/cluster/addresses/remove api.ClusterAddressRequest → api.Result
//	POST /v1/cluster/addresses/claim  api.ClusterAddressRequest → api.Result
//	GET  /v1/cluster/addresses        → ClusterAddresses
//	POST /v1/cluster/services/set api.ClusterServiceRequest → api.Result
//	POST /v1/cluster/services/remove ServiceName → api.Result
//	GET  /v1/cluster/services/{name} → api.ClusterService
//	GET  /v1/state            → State
//	GET  /v1/state/editable   → State
//	GET  /v1/attachments      → Attachments
//	GET  /v1/networks         → Networks
//	GET  /v1/services         → Services
//	GET  /v1/services/{name}  → api.ServiceView
//	GET  /v1/events           → Events; with ?follow, one api.Event per line
//	GET  /v1/changes          → Changes
//	GET  /v1/stats            → api.Stats
//	GET  /v1/history          → api.History
//	GET  /v1/gateway/api/…    → what the API of the daemon's HTTP gateway answers
package admin

import "fairlead/internal/api"

// Socket is the default path of the daemon's socket.
const Socket = "/run/fairlead/fairlead.sock"

// Daemon are the calls that the API makes. *daemon.Daemon implements all of them
// but the last eight.
type Daemon struct {
	Attachments AttachmentCalls
	Publishes   PublishCalls
	Networks    NetworkCalls
	Services    ServiceCalls
	Specs       SpecCalls
	Events      EventCalls
	Stats       StatsCalls
	// History is nil if the daemon keeps no figures of the last hour.
	History HistoryCalls
	// Gateway is nil if the daemon runs no HTTP gateway.
	Gateway GatewayCalls
	// The following are nil if the daemon cannot be a member of a cluster.
	Cluster          ClusterCalls
	ClusterTokens    ClusterTokenCalls
	ClusterNetworks  ClusterNetworkCalls
	ClusterAddresses ClusterAddressCalls
	ClusterBGP       ClusterBGPCalls
	ClusterServices  ClusterServiceCalls
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
