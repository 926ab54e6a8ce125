package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
)

// The requests for the cluster.
const (
	InitCluster    Call[api.ClusterInit, api.Result]               = "/v1/cluster/init"
	JoinCluster    Call[api.ClusterJoin, api.Result]               = "/v1/cluster/join"
	LeaveCluster   Call[api.ClusterNodeRequest, api.Result]        = "/v1/cluster/leave"
	DrainNode      Call[api.ClusterNodeRequest, api.Result]        = "/v1/cluster/drain"
	RemoveNode     Call[api.ClusterNodeRequest, api.Result]        = "/v1/cluster/remove"
	AcceptCluster  Call[struct{}, api.Result]                      = "/v1/cluster/accept"
	SetEtcd        Call[api.EtcdAccess, api.Result]                = "/v1/cluster/etcd"
	SetClusterHost Call[api.ClusterHost, api.Result]               = "/v1/cluster/host"
	ListTokens     Query[ClusterTokens]                            = "/v1/cluster/tokens"
	CreateToken    Call[api.ClusterTokenRequest, api.ClusterToken] = "/v1/cluster/tokens/create"
	RemoveToken    Call[TokenID, api.Result]                       = "/v1/cluster/tokens/remove"
	// ExplainFlow returns a Fault with code NotFound if no other node has the destination of the flow.
	ExplainFlow Call[api.FlowQuestion, api.FlowPart] = "/v1/cluster/explain"
	ShowCluster Query[api.ClusterStatus]             = "/v1/cluster"
	// ListObjects returns a Fault with code NotFound if the host has no records of a cluster.
	ListObjects Query[ClusterObjects] = "/v1/cluster/objects"
	// ShowNodes is ShowCluster with what the other nodes answer.
	ShowNodes = ShowCluster + "?" + askNodes
)

// askNodes is the parameter of the cluster's state with which the other nodes are asked, too.
const askNodes = "ask-nodes"

// ClusterCalls are the calls for the host's membership in a cluster. *member.Member has most of
// them.
type ClusterCalls interface {
	Init(ctx context.Context, r api.ClusterInit) error
	Join(ctx context.Context, r api.ClusterJoin) error
	Leave(ctx context.Context, r api.ClusterNodeRequest) (notes []string, err error)
	Drain(ctx context.Context, r api.ClusterNodeRequest) error
	Remove(ctx context.Context, r api.ClusterNodeRequest) error
	Accept(ctx context.Context) error
	SetEtcd(ctx context.Context, access api.EtcdAccess) error
	SetHost(ctx context.Context, r api.ClusterHost) error
	// Status returns the state of the cluster. If ask is set, the other nodes are asked how far they are.
	Status(ctx context.Context, ask bool) (api.ClusterStatus, error)
	// Objects returns what the nodes have, by their records. It asks no other host.
	Objects() ([]api.ClusterObject, error)
	// ExplainFlow asks the node that has the destination of a flow. Returns a Fault with code NotFound if no
	// other node has it.
	ExplainFlow(ctx context.Context, q api.FlowQuestion) (api.FlowPart, error)
}

// ClusterTokenCalls are the calls for join tokens. *member.Member implements them.
type ClusterTokenCalls interface {
	CreateToken(ctx context.Context, r api.ClusterTokenRequest) (api.ClusterToken, error)
	Tokens() ([]api.ClusterToken, error)
	RemoveToken(ctx context.Context, id string) error
}

// ClusterTokens are the valid join tokens.
type ClusterTokens struct {
	Tokens []api.ClusterToken `json:"tokens"`
}

// ClusterObjects are what the nodes of the cluster have.
type ClusterObjects struct {
	Objects []api.ClusterObject `json:"objects"`
}

// TokenID names a join token.
type TokenID struct {
	ID string `json:"id"`
}

// clusterHandlers registers the handlers of the cluster.
func clusterHandlers(mux *http.ServeMux, d ClusterCalls) {
	handleChange(mux, InitCluster, d.Init)
	handleChange(mux, JoinCluster, d.Join)
	LeaveCluster.handle(mux, func(ctx context.Context, r api.ClusterNodeRequest) (api.Result, error) {
		notes, err := d.Leave(ctx, r)
		return api.Result{Notes: notes}, err
	})
	handleChange(mux, DrainNode, d.Drain)
	handleChange(mux, RemoveNode, d.Remove)
	handleChange(mux, AcceptCluster, func(ctx context.Context, _ struct{}) error { return d.Accept(ctx) })
	handleChange(mux, SetEtcd, d.SetEtcd)
	handleChange(mux, SetClusterHost, d.SetHost)
	ExplainFlow.handle(mux, d.ExplainFlow)
	ListObjects.handle(mux, func() (ClusterObjects, error) {
		all, err := d.Objects()
		return ClusterObjects{all}, err
	})
	mux.HandleFunc("GET "+string(ShowCluster), func(w http.ResponseWriter, r *http.Request) {
		status, err := d.Status(r.Context(), r.URL.Query().Has(askNodes))
		reply(w, status, err)
	})
}

// clusterTokenHandlers registers the handlers of join tokens.
func clusterTokenHandlers(mux *http.ServeMux, d ClusterTokenCalls) {
	CreateToken.handle(mux, d.CreateToken)
	handleChange(mux, RemoveToken, func(ctx context.Context, r TokenID) error { return d.RemoveToken(ctx, r.ID) })
	ListTokens.handle(mux, func() (ClusterTokens, error) {
		all, err := d.Tokens()
		return ClusterTokens{all}, err
	})
}
