package networks

import (
	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// endpoints returns the records of the attachments that run, by their keys. A container whose names are
// not known yet gets its record a moment later, unless other hosts need its hardware address.
func (n *Networks) endpoints(s kv.Snapshot, node string) map[string][]byte {
	ours := map[string]bool{}
	for _, network := range n.cfg.Host.Networks() {
		ours[network.Name] = network.Origin == model.FromCluster
	}
	all := map[string][]byte{}
	for _, v := range n.cfg.Host.Attachments() {
		if v.Status != api.Up || !ours[v.Network] || len(v.Endpoint.Addresses) == 0 {
			continue
		}
		key := record.Key(record.Endpoints, v.Network, node, v.Name)
		if names, known := n.containers.of(v, key, s); known || v.Endpoint.MAC != "" {
			all[key] = record.Encode(record.Endpoint{Names: names, Addresses: v.Endpoint.Addresses,
				MAC: v.Endpoint.MAC})
		}
	}
	return all
}
