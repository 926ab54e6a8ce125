package gateways

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// Deriver derives the objects of the gateway from snapshots. Its result is a function of the snapshot and of the
// node's id; it only remembers the objects that it has read. Only one goroutine may use it.
type Deriver struct {
	node    string
	size    func(gateway.Config) int
	objects map[string]object // by key
}

// NewDeriver returns a Deriver for the node with this id. Size is as in Config.
func NewDeriver(node string, size func(gateway.Config) int) *Deriver {
	return &Deriver{node: node, size: size, objects: map[string]object{}}
}

// Derive returns the objects of a snapshot as this node has them, nil if there is none, and the problems of records
// that are no objects. A record that cannot be used disables its own object.
func (d *Deriver) Derive(s kv.Snapshot) (*model.ClusterGateway, []string) {
	d.read(s)
	if len(d.objects) == 0 {
		return nil, nil
	}
	c := &model.ClusterGateway{}
	all, placed, left := c.Config.Objects(), 0, maxExpressions
	for _, key := range slices.Sorted(maps.Keys(d.objects)) {
		o := d.objects[key]
		if o.err == nil && placed == maxObjects {
			o.err = fmt.Errorf("the cluster has more than %d objects: remove some", maxObjects)
		}
		if o.err == nil && o.size > left {
			o.err = fmt.Errorf("the regular expressions of the cluster's objects need more than %d instructions: simplify them",
				maxExpressions)
		}
		if o.err != nil {
			c.Problems = append(c.Problems, o.problem(o.err.Error(), false))
			continue
		}
		o.put(all)
		placed, left = placed+1, left-o.size
	}
	v := newServers(s, d.node)
	v.complete(c)
	return c, v.problems
}

// read reads the records of objects that have changed.
func (d *Deriver) read(s kv.Snapshot) {
	next := map[string]object{}
	for e := range s.Under(record.Gateway) {
		have, known := d.objects[e.Key]
		if !known || have.entry.Revision != e.Revision || string(have.entry.Value) != string(e.Value) {
			// An object that is not complete is dropped.
			if err := recovery.Object("record "+e.Key, func() { have = d.sized(read(e)) }); err != nil {
				have = object{entry: e, kind: kind{name: "object"}, name: e.Key, err: err}
			}
		}
		next[e.Key] = have
	}
	d.objects = next
}

// sized returns the object with the size of its regular expressions.
func (d *Deriver) sized(o object) object {
	if o.err == nil {
		var c gateway.Config
		o.put(c.Objects())
		o.size = d.size(c)
	}
	return o
}

// servers replaces selectors by the sandboxes of other nodes.
type servers struct {
	snapshot kv.Snapshot
	node     string
	networks map[string]network
	found    map[gateway.Selector][]found
	problems []string
	// leaves means that this node is drained.
	leaves bool
}

func newServers(s kv.Snapshot, node string) *servers {
	return &servers{snapshot: s, node: node, networks: map[string]network{}, found: map[gateway.Selector][]found{}}
}

// found is a sandbox of another node.
type found struct {
	record.SelectedSandbox
	revision int64
}

// network is a network of the cluster. Its error is why no service can select its sandboxes.
type network struct {
	record.Network
	err error
}

// complete adds the sandboxes of other nodes to the services. Entries that select sandboxes stay for those of this
// node. An entry whose network the cluster does not have is left out.
func (v *servers) complete(c *model.ClusterGateway) {
	v.leaves = v.drained(v.node)
	completed(v, c, "service", c.Config.HTTP.Services, v.httpServers)
	completed(v, c, "TCP service", c.Config.TCP.Services, v.tcpServers)
	completed(v, c, "UDP service", c.Config.UDP.Services, v.udpServers)
}

// httpServers returns the servers that an entry stands for: itself, if own, and the sandboxes of other nodes.
func (v *servers) httpServers(entry gateway.Server, own bool, others []found) (all []gateway.Server) {
	if own {
		here := entry
		here.Fenced = entry.Fenced || v.leaves && !entry.Selector().IsZero()
		all = append(all, here)
	}
	for _, f := range others {
		all = append(all, httpServer(entry, f))
	}
	return all
}

func (v *servers) tcpServers(entry gateway.TCPServer, own bool, others []found) (all []gateway.TCPServer) {
	if own && (!v.leaves || entry.Selector().IsZero()) {
		all = append(all, entry)
	}
	for _, at := range usable(others, entry.Port) {
		all = append(all, gateway.TCPServer{Address: at, TLS: entry.TLS})
	}
	return all
}

func (v *servers) udpServers(entry gateway.UDPServer, own bool, others []found) (all []gateway.UDPServer) {
	if own && (!v.leaves || entry.Selector().IsZero()) {
		all = append(all, entry)
	}
	for _, at := range usable(others, entry.Port) {
		all = append(all, gateway.UDPServer{Address: at})
	}
	return all
}

// completed replaces the servers of services, and notes the selectors that cannot be used.
func completed[S any, T interface{ Selector() gateway.Selector }, P gateway.Balanced[S, T]](v *servers,
	c *model.ClusterGateway, kind string, all map[string]P, servers func(entry T, own bool, others []found) []T) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		problem := func(err error, warning bool) {
			c.Problems = append(c.Problems, model.GatewayProblem{Kind: kind, Name: name, Text: err.Error(),
				Warning: warning})
		}
		// The service is replaced when it is complete.
		err := recovery.Object(kind+" "+name, func() {
			var next []T
			for _, entry := range all[name].Servers() {
				others, err := v.selected(entry.Selector())
				if err != nil {
					problem(err, true)
				}
				next = append(next, servers(entry, err == nil, others)...)
			}
			all[name] = all[name].WithServers(next)
		})
		if err != nil {
			problem(err, false)
			delete(all, name)
		}
	}
}

// selected returns the sandboxes of other nodes that a selector has found, or why it cannot be used.
func (v *servers) selected(by gateway.Selector) ([]found, error) {
	if by.IsZero() {
		return nil, nil
	}
	if n := v.network(by.Network); n.err != nil {
		return nil, n.err
	}
	return v.others(by), nil
}

// httpServer returns the server that a sandbox of another node is, for an entry that has selected it.
func httpServer(entry gateway.Server, f found) gateway.Server {
	scheme := entry.Scheme
	if scheme == "" {
		scheme = "http"
	}
	return gateway.Server{URL: scheme + "://" + net.JoinHostPort(f.Address.String(), entry.Port), Weight: entry.Weight,
		PreservePath: entry.PreservePath, Fenced: entry.Fenced || f.Draining, Down: f.Down}
}

// usable returns HOST:PORT of the sandboxes that neither drain nor are down.
func usable(all []found, port string) (addresses []string) {
	for _, f := range all {
		if !f.Draining && f.Down == "" {
			addresses = append(addresses, net.JoinHostPort(f.Address.String(), port))
		}
	}
	return addresses
}

func (v *servers) drained(node string) bool {
	n, _, err := record.Get[record.Node](v.snapshot, record.Key(record.Nodes, node))
	return err == nil && n.Drained
}

// network returns a network of the cluster.
func (v *servers) network(name string) network {
	n, known := v.networks[name]
	if known {
		return n
	}
	r, exists, err := record.Get[record.Network](v.snapshot, record.Key(record.Networks, name))
	if err == nil && !exists {
		err = fmt.Errorf("network %s is none of the cluster's", name)
	}
	v.networks[name] = network{r, err}
	return v.networks[name]
}

// others returns the sandboxes of other nodes that a selector has found, in the order of their addresses. If several
// records have an address, the newest counts: the sandbox moves.
func (v *servers) others(by gateway.Selector) []found {
	if all, known := v.found[by]; known {
		return all
	}
	newest := map[netip.Addr]found{}
	for e := range v.snapshot.Under(record.Key(record.Selected, record.SelectorHash(model.Select(by)), "")) {
		names := record.Names(record.Selected, e.Key, 3)
		if len(names) != 3 || names[1] == v.node {
			continue
		}
		_, exists, err := record.Get[record.Node](v.snapshot, record.Key(record.Nodes, names[1]))
		if err != nil || !exists {
			continue
		}
		r, err := record.Decode[record.SelectedSandbox](e)
		if err == nil {
			err = v.acceptable(by.Network, r.Address)
		}
		if err != nil {
			v.problems = append(v.problems, fmt.Sprintf("record %s: %v", e.Key, err))
			continue
		}
		r.Draining, r.Down = r.Draining || v.drained(names[1]), r.Down[:min(len(r.Down), maxDown)]
		if have, known := newest[r.Address]; !known || have.revision < e.Revision {
			newest[r.Address] = found{r, e.Revision}
		}
	}
	all := slices.SortedFunc(maps.Values(newest), func(a, b found) int { return a.Address.Compare(b.Address) })
	v.found[by] = all[:min(len(all), model.MaxReals)]
	return v.found[by]
}

// acceptable returns an error for an address that no sandbox of another node can have: it is in no block of the
// network, or is this node's own.
func (v *servers) acceptable(name string, a netip.Addr) error {
	n := v.network(name)
	for i, sub := range n.Spec.Subnets {
		if !sub.Prefix.Contains(a) {
			continue
		}
		p, err := a.Prefix(n.BlockBits[i])
		if err != nil {
			return err
		}
		b, exists, err := record.Get[record.Block](v.snapshot, record.Key(record.Blocks, name, p.String()))
		if err == nil && exists && !(b.Node == v.node && (a == p.Addr() || a == p.Addr().Next())) {
			return nil
		}
	}
	return fmt.Errorf("%s is no address of another node in network %s", a, name)
}

// concerns reports whether a key can change the result.
func concerns(key string) bool {
	return slices.ContainsFunc([]string{record.Gateway, record.Selected, record.Nodes, record.Networks, record.Blocks},
		func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}
