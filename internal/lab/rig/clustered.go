package rig

import (
	"errors"
	"net/netip"
	"strings"

	"fairlead/internal/cluster/derive"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// clusterBits is the prefix length of the blocks, which is the default of `network create --cluster`.
const clusterBits = 26

// The ids of the nodes that are the hosts of the rig.
const (
	serverNode = "server"
	clientNode = "client"
)

// clustered returns an overlay as a node of a cluster derives it from the cluster's records. Two of the
// three nodes are the hosts of the rig.
func clustered(spec model.Network, at *Addresses, self string) (model.Network, error) {
	spec.Overlay = model.Overlay{VNI: VNI}
	entries := []kv.Entry{entry(record.Networks+spec.Name,
		record.Network{Spec: spec, BlockBits: []int{clusterBits}, Sequence: 3})}
	for i, node := range []struct {
		id    string
		addr  netip.Addr
		block netip.Prefix
	}{{serverNode, at.Server, at.ServerBlock}, {clientNode, at.Client, at.ClientBlock},
		{"third", at.Third, at.ThirdBlock}} {
		entries = append(entries, entry(record.Nodes+node.id,
			record.Node{ID: node.id, Name: node.id, Addresses: []netip.Addr{node.addr}}),
			entry(record.Key(record.Blocks, spec.Name, node.block.String()),
				record.Block{Node: node.id, Sequence: int64(i + 1)}))
	}
	table := kv.NewTable(1, entries)
	networks, _, problems := derive.New(self).Update(
		kv.Update{Snapshot: table, Changed: kv.Diff(kv.NewTable(0, nil), table)})
	if len(problems) > 0 || len(networks) != 1 {
		return model.Network{}, errors.New("derive the cluster's network: " + strings.Join(problems, "; "))
	}
	return networks[0], nil
}

func entry[T any](key string, v T) kv.Entry {
	return kv.Entry{Key: key, Value: record.Encode(v), Revision: 1}
}
