package networks

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"

	"fairlead/internal/api"
)

// AnswerAddress answers another node's question whether this one uses an address (member.Ask). If the
// question has a revision, it waits until this host has the networks of this revision, so that it does not
// lease the address afterwards.
func (n *Networks) AnswerAddress(ctx context.Context, _ string, text json.RawMessage) (any, error) {
	var q addressQuestion
	if err := json.Unmarshal(text, &q); err != nil || !q.Address.IsValid() {
		return nil, api.Faultf(api.Invalid, "answer question about an address: want a network and an address")
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if err := n.awaitApplied(ctx, q.Revision); err != nil {
		return nil, err
	}
	if user := n.user(place{q.Network, q.Address}); user != "" {
		return addressAnswer{user}, nil
	}
	network := n.host(q.Network)
	for _, s := range network.Subnets {
		if s.HostAddress() == q.Address {
			return addressAnswer{"the host"}, nil
		}
		in := slices.ContainsFunc(network.Pools(s), func(b netip.Prefix) bool { return b.Contains(q.Address) })
		if q.Revision > 0 && in && !slices.Contains(network.Listed(), q.Address) {
			return nil, api.Faultf(api.Conflict, "this node may still lease the address: `fairlead cluster status` on it "+
				"shows why it cannot follow the records of the cluster")
		}
	}
	return addressAnswer{}, nil
}
