package docker_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/frontend/docker"
	"fairlead/internal/model"
)

// cluster is a cluster with network shop that gives the host a block of four addresses of each network.
type cluster struct{ *plugin }

// HasNetwork implements docker.Cluster.
func (cluster) HasNetwork(name string) bool { return name == "shop" }

// CreateNetwork implements docker.Cluster. The host gets the network at once.
func (c cluster) CreateNetwork(_ context.Context, n model.Network, _ []int) error {
	if c.HasNetwork(n.Name) {
		return api.Faultf(api.Conflict, "the cluster has it already")
	}
	c.has(n.Name, n.Subnets[0].Prefix, netip.PrefixFrom(n.Subnets[0].Prefix.Addr(), 30))
	return nil
}

// ReserveAddresses implements docker.Cluster. Another host has the address 10.9.0.9.
func (cluster) ReserveAddresses(_ context.Context, _ string, addrs []netip.Addr) (func(), error) {
	if slices.Contains(addrs, netip.MustParseAddr("10.9.0.9")) {
		return nil, api.Faultf(api.Conflict, "web on node host1 has it")
	}
	return func() {}, nil
}

// has gives the host a network of the cluster with these blocks.
func (c cluster) has(name string, subnet netip.Prefix, blocks ...netip.Prefix) {
	c.Helper()
	n := model.Network{Name: name, Driver: model.DriverRouted, Origin: model.FromCluster,
		Subnets:       []model.Subnet{{Prefix: subnet, Range: blocks[0]}},
		FurtherRanges: blocks[1:]}
	if _, err := c.Daemon.CreateNetwork(n, false); err != nil {
		c.Fatal(err)
	}
}

func shopPool(rest string) string { return `{"PoolID": "10.9.0.0/24 cluster=shop"` + rest + `}` }

// shop makes network shop of the cluster a network of Docker.
func (p *plugin) shop() cluster {
	p.Helper()
	c := cluster{p}
	c.has("shop", netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("10.9.0.64/30"))
	p.calls("IpamDriver.RequestPool", `{"Options": {"cluster": "shop"}}`,
		`{"PoolID":"10.9.0.0/24 cluster=shop","Pool":"10.9.0.0/24"}`)
	p.calls("IpamDriver.RequestAddress", shopPool(`, `+gatewayType), `{"Address":"10.9.0.64/24"}`)
	p.calls("NetworkDriver.CreateNetwork", `{"NetworkID": "0123456789abcdef", "IPv4Data":
		[{"AddressSpace": "fairlead", "Pool": "10.9.0.0/24", "Gateway": "10.9.0.64/24"}]}`, `{}`)
	return c
}

// TestClusterAddresses leases the addresses of the host's blocks, and of no others.
func TestClusterAddresses(t *testing.T) {
	p := newPlugin(t)
	c := p.shop()
	for _, want := range []string{"65", "66", "67"} {
		p.calls("IpamDriver.RequestAddress", shopPool(``), `{"Address":"10.9.0.`+want+`/24"}`)
	}
	full, cancel := context.WithCancel(t.Context())
	cancel()
	p.refusesIn(full, "IpamDriver.RequestAddress", shopPool(``), "no address is free")
	c.has("shop", netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("10.9.0.64/30"),
		netip.MustParsePrefix("10.9.0.0/30"))
	p.calls("IpamDriver.RequestAddress", shopPool(``), `{"Address":"10.9.0.1/24"}`)
	p.calls("IpamDriver.RequestAddress", shopPool(`, "Address": "10.9.0.3"`), `{"Address":"10.9.0.3/24"}`)
	p.refuses("IpamDriver.RequestAddress", shopPool(`, "Address": "10.9.0.9"`), "web on node host1 has it")
	p.refuses("IpamDriver.RequestAddress", shopPool(`, "Address": "10.9.0.64"`), "that of the host")
	p.calls("IpamDriver.ReleaseAddress", shopPool(`, "Address": "10.9.0.66"`), `{}`)
	p.calls("Plugin.Activate", "", `{"Implements":["NetworkDriver","IpamDriver"]}`)
	p.calls("IpamDriver.RequestPool", `{"Pool": "10.9.0.0/24", "Options": {"cluster": "shop"}}`,
		`{"PoolID":"10.9.0.0/24 cluster=shop","Pool":"10.9.0.0/24"}`)
	p.calls("IpamDriver.RequestAddress", shopPool(`, "Address": "10.9.0.64", `+gatewayType),
		`{"Address":"10.9.0.64/24"}`)
	p.calls("IpamDriver.RequestAddress", shopPool(`, "Address": "10.9.0.3"`), `{"Address":"10.9.0.3/24"}`)
}

// TestClusterAddressIsLeasedLast frees an address. The next container gets another one, because other hosts may still
// have the name of the first one.
func TestClusterAddressIsLeasedLast(t *testing.T) {
	p := newPlugin(t)
	p.shop()
	for _, want := range []string{"65", "66", "67", "65"} {
		p.calls("IpamDriver.RequestAddress", shopPool(``), `{"Address":"10.9.0.`+want+`/24"}`)
		p.calls("IpamDriver.ReleaseAddress", shopPool(`, "Address": "10.9.0.`+want+`"`), `{}`)
	}
}

// TestClusterNetwork attaches endpoints of a Docker network to the cluster's network, which stays when
// Docker removes its own.
func TestClusterNetwork(t *testing.T) {
	p := newPlugin(t)
	p.shop()
	if !docker.Stands(p.lasting) {
		t.Error("no note says that a Docker network stands for the cluster's")
	}
	p.post("POST", "NetworkDriver.CreateEndpoint", strings.NewReader(`{"NetworkID": "0123456789abcdef",
		"EndpointID": "fedcba9876543210", "Interface": {"Address": "10.9.0.65/24"}}`))
	if all := p.Attachments(); len(all) != 1 || all[0].Network != "shop" {
		t.Fatalf("the attachments are %+v", all)
	}
	p.calls("NetworkDriver.DeleteNetwork", `{"NetworkID": "0123456789abcdef"}`, `{}`)
	if all := p.Networks(); len(all) != 1 || all[0].Name != "shop" || len(p.Attachments()) > 0 ||
		docker.Stands(p.lasting) {
		t.Errorf("after its removal from Docker the host has the networks %+v with %+v, and the notes %v", all,
			p.Attachments(), p.lasting)
	}
	p.calls("NetworkDriver.DeleteNetwork", `{"NetworkID": "0123456789abcdef"}`, `{}`)
	p.calls("IpamDriver.RequestPool", `{"Pool": "10.8.0.0/24", "Options": {"cluster": "new"}}`,
		`{"PoolID":"10.8.0.0/24 cluster=new","Pool":"10.8.0.0/24"}`)
	p.refuses("IpamDriver.RequestPool", `{"Options": {"cluster": "absent"}}`, "give a --subnet")
}

// TestClusterDrained leases no addresses for containers while the host is drained. A container that runs keeps its
// address: Docker requests it again when it starts.
func TestClusterDrained(t *testing.T) {
	p := newPlugin(t)
	p.shop()
	p.calls("IpamDriver.RequestAddress", shopPool(``), `{"Address":"10.9.0.65/24"}`)
	n := p.Networks()[0]
	n.Drained = true
	if _, err := p.Daemon.CreateNetwork(n, false); err != nil {
		t.Fatal(err)
	}
	p.post("POST", "NetworkDriver.CreateEndpoint", strings.NewReader(`{"NetworkID": "0123456789abcdef",
		"EndpointID": "fedcba9876543210", "Interface": {"Address": "10.9.0.65/24"}}`))
	for _, request := range []string{shopPool(``), shopPool(`, "Address": "10.9.0.66"`)} {
		p.refuses("IpamDriver.RequestAddress", request, "this host is drained")
	}
	p.calls("Plugin.Activate", "", `{"Implements":["NetworkDriver","IpamDriver"]}`)
	p.calls("IpamDriver.RequestPool", `{"Pool": "10.9.0.0/24", "Options": {"cluster": "shop"}}`,
		`{"PoolID":"10.9.0.0/24 cluster=shop","Pool":"10.9.0.0/24"}`)
	p.calls("IpamDriver.RequestAddress", shopPool(`, "Address": "10.9.0.64", `+gatewayType),
		`{"Address":"10.9.0.64/24"}`)
	p.calls("IpamDriver.RequestAddress", shopPool(`, "Address": "10.9.0.65"`), `{"Address":"10.9.0.65/24"}`)
}
