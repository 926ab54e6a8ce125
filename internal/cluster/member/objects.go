package member

import (
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// Objects returns what the nodes of the cluster have, by their records in the last snapshot. It asks neither etcd nor
// another node. Returns a Fault with code NotFound if there is no snapshot.
func Objects(m *Member) ([]api.ClusterObject, error) {
	m.mu.Lock()
	snapshot := m.snapshot
	m.mu.Unlock()
	if snapshot == nil {
		return nil, NoRecords()
	}
	return objectsOf(snapshot), nil
}

// objectsOf lists real servers, endpoints and servers of the gateway, also those whose record cannot be read. It leaves
// out those of hosts that are no nodes.
func objectsOf(s kv.Snapshot) []api.ClusterObject {
	nodes := nodesOf(s)
	all := []api.ClusterObject{}
	list := func(prefix string, kind api.ClusterObjectKind, fill func(kv.Entry, *api.ClusterObject) error) {
		for e := range s.Under(prefix) {
			names := record.Names(prefix, e.Key, 3)
			if len(names) != 3 || nodes[names[1]].ID == "" {
				continue
			}
			o := api.ClusterObject{Node: nodes[names[1]].Name, Kind: kind, Of: names[0], Name: names[2]}
			if err := fill(e, &o); err != nil {
				o.Addresses, o.Port, o.Unreadable = nil, 0, err.Error()
			}
			all = append(all, o)
		}
	}
	list(record.Reals, api.ClusterReal, func(e kv.Entry, o *api.ClusterObject) error {
		r, err := record.Decode[record.Real](e)
		o.Addresses, o.Port, o.Draining = []netip.Addr{r.Address}, r.Port, r.Draining
		return err
	})
	list(record.Endpoints, api.ClusterEndpoint, func(e kv.Entry, o *api.ClusterObject) error {
		r, err := record.Decode[record.Endpoint](e)
		o.Addresses = r.Addresses
		return err
	})
	list(record.Selected, api.ClusterSandbox, func(e kv.Entry, o *api.ClusterObject) error {
		r, err := record.Decode[record.SelectedSandbox](e)
		o.Of = "" // a hash
		o.Addresses, o.Draining, o.Down = []netip.Addr{r.Address}, r.Draining, r.Down
		return err
	})
	return all
}
