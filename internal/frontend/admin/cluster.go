package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
)

// The paths of the cluster.
const (
	pathClusterInit   = "/v1/cluster/init"
	pathClusterJoin   = "/v1/cluster/join"
	pathClusterLeave  = "/v1/cluster/leave"
	pathClusterDrain  = "/v1/cluster/drain"
	pathClusterRemove = "/v1/cluster/remove"
	pathClusterAccept = "/v1/cluster/accept"
	pathClusterEtcd   = "/v1/cluster/etcd"
	pathClusterHost   = "/v1/cluster/host"
	pathClusterTokens = "/v1/cluster/tokens"
	pathTokenCreate   = "/v1/cluster/tokens/create"
	pathTokenRemove   = "/v1/cluster/tokens/remove"
	pathClusterFlow   = "/v1/cluster/explain"
	pathCluster       = "/v1/cluster"
)

// askNodes is the parameter of the cluster's state with which the other nodes are asked, too.
const askNodes = "ask-nodes"

// ClusterCalls are the calls for the host's membership in a cluster. *member.Member implements
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

// TokenID names a join token.
type TokenID struct {
	ID string `json:"id"`
}

// clusterHandlers registers the handlers of the cluster.
func clusterHandlers(mux *http.ServeMux, d ClusterCalls) {
	post(mux, pathClusterInit, func(ctx context.Context, r api.ClusterInit) (api.Result, error) {
		return changed(d.Init(ctx, r))
	})
	post(mux, pathClusterJoin, func(ctx context.Context, r api.ClusterJoin) (api.Result, error) {
		return changed(d.Join(ctx, r))
	})
	post(mux, pathClusterLeave, func(ctx context.Context, r api.ClusterNodeRequest) (api.Result, error) {
		notes, err := d.Leave(ctx, r)
		return api.Result{Notes: notes}, err
	})
	post(mux, pathClusterDrain, func(ctx context.Context, r api.ClusterNodeRequest) (api.Result, error) {
		return changed(d.Drain(ctx, r))
	})
	post(mux, pathClusterRemove, func(ctx context.Context, r api.ClusterNodeRequest) (api.Result, error) {
		return changed(d.Remove(ctx, r))
	})
	post(mux, pathClusterAccept, func(ctx context.Context, _ struct{}) (api.Result, error) {
		return changed(d.Accept(ctx))
	})
	post(mux, pathClusterEtcd, func(ctx context.Context, r api.EtcdAccess) (api.Result, error) {
		return changed(d.SetEtcd(ctx, r))
	})
	post(mux, pathClusterHost, func(ctx context.Context, r api.ClusterHost) (api.Result, error) {
		return changed(d.SetHost(ctx, r))
	})
	post(mux, pathClusterFlow, d.ExplainFlow)
	mux.HandleFunc("GET "+pathCluster, func(w http.ResponseWriter, r *http.Request) {
		status, err := d.Status(r.Context(), r.URL.Query().Has(askNodes))
		reply(w, status, err)
	})
}

// clusterTokenHandlers registers the handlers of join tokens.
func clusterTokenHandlers(mux *http.ServeMux, d ClusterTokenCalls) {
	post(mux, pathTokenCreate, d.CreateToken)
	post(mux, pathTokenRemove, func(ctx context.Context, r TokenID) (api.Result, error) {
		return changed(d.RemoveToken(ctx, r.ID))
	})
	mux.HandleFunc("GET "+pathClusterTokens, func(w http.ResponseWriter, _ *http.Request) {
		all, err := d.Tokens()
		reply(w, ClusterTokens{all}, err)
	})
}

// changed is the result of a change without details.
func changed(err error) (api.Result, error) { return api.Result{Changed: err == nil}, err }

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, v)
}

// InitCluster creates a cluster.
func (c *Client) InitCluster(ctx context.Context, r api.ClusterInit) (api.Result, error) {
	return c.post(ctx, pathClusterInit, r)
}

// JoinCluster makes the host a node of a cluster.
func (c *Client) JoinCluster(ctx context.Context, r api.ClusterJoin) (api.Result, error) {
	return c.post(ctx, pathClusterJoin, r)
}

// LeaveCluster ends the host's membership.
func (c *Client) LeaveCluster(ctx context.Context, r api.ClusterNodeRequest) (api.Result, error) {
	return c.post(ctx, pathClusterLeave, r)
}

// DrainNode drains a node of the cluster, or ends its drain.
func (c *Client) DrainNode(ctx context.Context, r api.ClusterNodeRequest) (api.Result, error) {
	return c.post(ctx, pathClusterDrain, r)
}

// RemoveNode removes a node of the cluster.
func (c *Client) RemoveNode(ctx context.Context, r api.ClusterNodeRequest) (api.Result, error) {
	return c.post(ctx, pathClusterRemove, r)
}

// AcceptCluster accepts the records of a restored store.
func (c *Client) AcceptCluster(ctx context.Context) (api.Result, error) {
	return c.post(ctx, pathClusterAccept, struct{}{})
}

// SetEtcd replaces how this host reaches the etcd of its cluster.
func (c *Client) SetEtcd(ctx context.Context, access api.EtcdAccess) (api.Result, error) {
	return c.post(ctx, pathClusterEtcd, access)
}

// SetClusterHost makes the host the one that acts as its node.
func (c *Client) SetClusterHost(ctx context.Context, r api.ClusterHost) (api.Result, error) {
	return c.post(ctx, pathClusterHost, r)
}

// CreateToken creates a join token.
func (c *Client) CreateToken(ctx context.Context, r api.ClusterTokenRequest) (t api.ClusterToken, err error) {
	err = c.call(ctx, http.MethodPost, pathTokenCreate, r, &t)
	return t, err
}

// Tokens returns the valid join tokens.
func (c *Client) Tokens(ctx context.Context) ([]api.ClusterToken, error) {
	var all ClusterTokens
	err := c.call(ctx, http.MethodGet, pathClusterTokens, nil, &all)
	return all.Tokens, err
}

// RemoveToken deletes a join token.
func (c *Client) RemoveToken(ctx context.Context, id string) (api.Result, error) {
	return c.post(ctx, pathTokenRemove, TokenID{id})
}

// ExplainFlow asks the node of the cluster that has the destination of a flow. Returns a Fault with code
// NotFound if no other node has it.
func (c *Client) ExplainFlow(ctx context.Context, q api.FlowQuestion) (part api.FlowPart, err error) {
	err = c.call(ctx, http.MethodPost, pathClusterFlow, q, &part)
	return part, err
}

// Cluster returns the state of the cluster as this host sees it.
func (c *Client) Cluster(ctx context.Context) (s api.ClusterStatus, err error) {
	err = c.call(ctx, http.MethodGet, pathCluster, nil, &s)
	return s, err
}

// ClusterNodes returns the state of the cluster, with what the other nodes answer.
func (c *Client) ClusterNodes(ctx context.Context) (s api.ClusterStatus, err error) {
	err = c.call(ctx, http.MethodGet, pathCluster+"?"+askNodes, nil, &s)
	return s, err
}
