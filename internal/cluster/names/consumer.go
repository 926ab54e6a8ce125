package names

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/model"
)

// Consumer keeps a Server at a cluster's names and at the host's networks. It is a member.Consumer,
// and comes after the one that applies the networks.
type Consumer struct {
	server *Server
	// networks returns the cluster's networks on the host.
	networks func() []model.Network
}

var _ member.Consumer = Consumer{}

// NewConsumer returns a consumer for the server. networks returns the cluster's networks that the
// host has, with its own ranges.
func NewConsumer(server *Server, networks func() []model.Network) Consumer {
	return Consumer{server, networks}
}

// Update implements member.Consumer.
func (c Consumer) Update(_ context.Context, _ member.Self, u kv.Update) (problems []string) {
	c.server.Update(u)
	var answered []Network
	for _, n := range c.networks() {
		answered = append(answered, networkOf(n))
	}
	failed := c.server.Set(answered)
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		problems = append(problems, fmt.Sprintf("network %s: %v", name, failed[name]))
	}
	return problems
}

// Leave implements member.Consumer.
func (c Consumer) Leave() error {
	c.server.Close()
	return nil
}

func networkOf(n model.Network) Network {
	all := Network{Name: n.Name}
	for _, sub := range n.Subnets {
		all.Addresses = append(all.Addresses, sub.HostAddress())
		all.Subnets = append(all.Subnets, sub.Prefix)
	}
	return all
}
