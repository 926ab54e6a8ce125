package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// A Docker network can be this host's part of a network of the cluster.
//
// Theory of operation. Docker makes a network of its own on each host, with the IPAM option
// cluster=NAME. RequestPool finds the cluster's network with that name, or adds it to the cluster,
// and waits until this host has it. The pool's ID contains the name. CreateNetwork then creates no
// network: it notes which network of the cluster the Docker network stands for. Endpoints are
// attached to that one. Addresses are leased from the host's own blocks, and the gateway is the
// host's own address, so no other host and no etcd is asked; an address of another host's block
// (docker run --ip) is reserved in the cluster before it is leased. DeleteNetwork removes the note;
// the network stays in the cluster.

// keyCluster is the name of the option with the name of the cluster's network.
const keyCluster = "cluster"

// How long a call waits until the host has a network or another block of addresses, and how often
// it checks.
const (
	clusterLimit = 10 * time.Second
	clusterEvery = 20 * time.Millisecond
)

// errFull means that all addresses of the host's blocks are leased.
var errFull = errors.New("no address is free")

// Cluster is the cluster of the host. *networks.Networks implements it.
type Cluster interface {
	// HasNetwork reports whether the cluster has a network with this name, as far as the host knows.
	HasNetwork(name string) bool
	// CreateNetwork adds a network to the cluster. Returns a Fault with code Conflict if the
	// cluster has it already.
	CreateNetwork(ctx context.Context, n model.Network, blockBits []int) error
	// ReserveAddresses makes this host the one that has these addresses of a network, until done is called or the
	// addresses are leased.
	ReserveAddresses(ctx context.Context, network string, addrs []netip.Addr) (done func(), err error)
}

// Stands reports whether one of the notes says that a Docker network stands for a network of the
// cluster.
func Stands(lasting map[string]json.RawMessage) bool {
	for key, raw := range lasting {
		var s settings
		if strings.HasPrefix(key, settingsKey("")) && json.Unmarshal(raw, &s) == nil && s.Cluster != "" {
			return true
		}
	}
	return false
}

// clusterOption returns the name of the cluster's network in the options of `docker network create
// --ipam-opt`.
func clusterOption(given map[string]string) (string, error) {
	for key := range given {
		if key != keyCluster {
			return "", fmt.Errorf("IPAM option %.64q: it does not exist: want %s=NAME", key, keyCluster)
		}
	}
	return given[keyCluster], nil
}

// clusterPool returns the pool of a network of the cluster. If the cluster does not have the
// network, and Docker gives a subnet, it is added to the cluster.
func (d *Driver) clusterPool(ctx context.Context, name string, r poolRequest) (pool, error) {
	if r.SubPool != "" {
		return pool{}, fmt.Errorf("network %s of the cluster: each host leases from its own blocks: omit --ip-range", name)
	}
	asked, err := readPool(r.Pool, "")
	if err != nil {
		return pool{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, clusterLimit)
	defer cancel()
	n, err := d.findOrCreate(ctx, name, asked.Prefix)
	if err != nil {
		return pool{}, err
	}
	i := slices.IndexFunc(n.Subnets, func(s model.Subnet) bool { return s.Prefix.Addr().Is4() != r.V6 })
	if i < 0 {
		return pool{}, fmt.Errorf("network %s of the cluster has the subnets %s: omit --ipv6", name, prefixes(n))
	}
	p := pool{Prefix: n.Subnets[i].Prefix.Masked(), Cluster: name}
	if p.Range = p.Prefix; asked.Prefix.IsValid() && asked.Prefix != p.Prefix {
		return p, fmt.Errorf("network %s of the cluster has the subnet %s: omit --subnet, or give this one", name,
			p.Prefix)
	}
	return p, nil
}

// findOrCreate returns a network of the cluster as soon as this host has it. If the cluster does not
// have it and the subnet is valid, it is added as an overlay.
func (d *Driver) findOrCreate(ctx context.Context, name string, subnet netip.Prefix) (model.Network, error) {
	if n := d.network(name); n.Origin != model.FromCluster && !d.cfg.Cluster.HasNetwork(name) {
		if !subnet.IsValid() {
			return n, fmt.Errorf("the cluster has no network %s: create it with `fairlead network create %s --cluster`, "+
				"or give a --subnet", name, name)
		}
		err := d.cfg.Cluster.CreateNetwork(ctx, model.Network{Name: name, Driver: model.DriverVXLAN,
			Subnets: []model.Subnet{{Prefix: subnet}}}, nil)
		if err != nil && !isFault(err, api.Conflict) { // else another host has added it meanwhile
			return n, err
		}
	}
	tick := time.NewTicker(clusterEvery)
	defer tick.Stop()
	for {
		n := d.network(name)
		if n.Origin == model.FromCluster {
			return n, nil
		}
		select {
		case <-ctx.Done():
			return n, absent(name)
		case <-tick.C:
		}
	}
}

// absent is the error if the host does not have a network of the cluster.
func absent(name string) error {
	return fmt.Errorf("this host does not have network %s of the cluster: `fairlead cluster status` and "+
		"`fairlead network ls` show why", name)
}

// clusterAddress leases an address of the host's blocks, or the requested one. If the blocks are full,
// it waits for the next block.
func (d *Driver) clusterAddress(ctx context.Context, p pool, asked netip.Addr, gateway bool) (given netip.Addr,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, clusterLimit)
	defer cancel()
	var others []netip.Addr
	if asked.IsValid() && !gateway {
		others = append(others, asked)
	}
	done, err := d.cfg.Cluster.ReserveAddresses(ctx, p.Cluster, others)
	if err != nil {
		return asked, err
	}
	defer done()
	tick := time.NewTicker(clusterEvery)
	defer tick.Stop()
	for {
		err = d.leasing(func(l *leases) (err error) {
			given, err = d.leaseOwn(l, p, asked, gateway)
			return err
		})
		if !errors.Is(err, errFull) {
			return given, err
		}
		select {
		case <-ctx.Done():
			return given, err
		case <-tick.C:
		}
	}
}

// leaseOwn leases the host's own address as the gateway, or an address of the host's blocks.
func (d *Driver) leaseOwn(l *leases, p pool, asked netip.Addr, gateway bool) (netip.Addr, error) {
	n := d.network(p.Cluster)
	i := slices.IndexFunc(n.Subnets, func(s model.Subnet) bool { return s.Prefix.Masked() == p.Prefix })
	if n.Origin != model.FromCluster || i < 0 {
		return asked, absent(p.Cluster)
	}
	if _, leased := l.leases[asked]; !gateway && !leased {
		if err := n.Lease(); err != nil {
			return asked, err
		}
	}
	p.own, p.last = n.Pools(n.Subnets[i]), d.leased[p.id()]
	own := n.Subnets[i].HostAddress()
	p.used = map[netip.Addr]bool{own: true}
	for _, a := range d.cfg.Daemon.Attachments() {
		for _, addr := range a.Addresses {
			p.used[addr] = true
		}
	}
	for _, addr := range n.Listed() { // endpoints on other hosts have them
		p.used[addr] = true
	}
	switch {
	case gateway && asked.IsValid() && asked != own:
		return asked, fmt.Errorf("gateway %s: this host has the address %s in network %s of the cluster: omit --gateway",
			asked, own, p.Cluster)
	case gateway:
		asked = own
	case asked == own:
		return asked, fmt.Errorf("address %s is that of the host: choose another address", asked)
	}
	given, err := l.claim(p, asked, gateway)
	if err == nil && !asked.IsValid() {
		d.leased[p.id()] = given
	}
	return given, err
}

// Leased reports whether an address of a network of the cluster is leased to a container.
func (d *Driver) Leased(network string, a netip.Addr) (leased bool) {
	err := d.leasing(func(l *leases) error {
		inUse := l.leases[a]
		for _, p := range l.pools {
			leased = leased || inUse.Claimed && p.Cluster == network && p.Prefix.Contains(a)
		}
		return nil
	})
	return leased || err != nil
}

// standIn notes that a Docker network stands for a network of the cluster.
func (d *Driver) standIn(n network) error {
	is := d.network(n.Cluster)
	switch {
	case is.Origin != model.FromCluster:
		return absent(n.Cluster)
	case is.Internal != n.Internal:
		return fmt.Errorf("network %s of the cluster: --internal must be as in `fairlead network create`: internal is %t",
			n.Cluster, is.Internal)
	case len(is.Subnets) != len(n.Subnets):
		return fmt.Errorf("network %s of the cluster has the subnets %s: use --ipam-driver %s and --ipv6 for both families",
			n.Cluster, prefixes(is), Name)
	}
	plain := model.Network{Name: n.Name, Origin: n.Origin, Internal: n.Internal, Subnets: n.Subnets, Driver: n.Driver}
	if !n.Network.Equal(plain) || n.Driver != is.Driver && n.Driver != implied(plain) {
		return fmt.Errorf("network %s belongs to the cluster: set its options with `fairlead network create --cluster`; "+
			"with Docker only via, promises and those for the host's ports and the interface's name are possible", n.Cluster)
	}
	if err := keeps(is.Driver, n.settings); err != nil {
		return err
	}
	return d.cfg.Lasting.Put(map[string]any{settingsKey(n.Name): settings{Cluster: n.Cluster},
		settingsKey(n.Cluster): n.settings})
}

// clusterOf returns the name of the cluster's network for the ranges of a Docker network, empty if
// it is none.
func (d *Driver) clusterOf(n network, data []ipamData) (string, error) {
	l, err := readLeases(d.cfg.Lasting.All(), nil)
	if err != nil {
		return "", err
	}
	name := ""
	for _, of := range data {
		for _, p := range l.pools {
			if of.AddressSpace == space && of.Pool == p.Prefix.String() && p.Cluster != "" {
				name = p.Cluster
			}
		}
	}
	if n.Cluster != "" && name != n.Cluster {
		return "", fmt.Errorf("network %s of the cluster: its addresses come from the host's blocks: "+
			"add --ipam-driver %s --ipam-opt %s=%s", n.Cluster, Name, keyCluster, n.Cluster)
	}
	return name, nil
}

// networkOf returns the network to which the endpoints of a Docker network are attached.
func (d *Driver) networkOf(docker string) string {
	if name := d.settings(docker).Cluster; name != "" {
		return name
	}
	return docker
}

func isFault(err error, code api.Code) bool {
	var f *api.Fault
	return errors.As(err, &f) && f.Code == code
}

func prefixes(n model.Network) string {
	var all []netip.Prefix
	for _, s := range n.Subnets {
		all = append(all, s.Prefix)
	}
	return joined(all)
}

func joined(all []netip.Prefix) string {
	var words []string
	for _, p := range all {
		words = append(words, p.String())
	}
	return strings.Join(words, ", ")
}
