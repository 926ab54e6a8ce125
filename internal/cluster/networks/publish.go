package networks

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// The limits of a transaction that publishes endpoints.
const (
	publishedAtOnce = 64
	publishLimit    = 5 * time.Second
)

// publish makes the records of the node's endpoints equal to its attachments. The published keys are
// those of the snapshot.
func (n *Networks) publish(ctx context.Context, s kv.Snapshot, node string, published []string) error {
	self, exists := s.Get(record.Key(record.Nodes, node))
	if !exists {
		return nil
	}
	changes := changedEndpoints(s, published, n.endpoints(s, node))
	for part := range slices.Chunk(changes, publishedAtOnce) {
		limited, cancel := context.WithTimeout(ctx, publishLimit)
		_, err := n.cfg.Store.Commit(limited, kv.Txn{
			If:   []kv.Condition{{Key: self.Key, Revision: self.Revision, Value: self.Value}},
			Then: part})
		cancel()
		if err != nil {
			return fmt.Errorf("publish endpoints: %w", err)
		}
	}
	return nil
}

// endpoints returns the records of the attachments that run, by their keys. A container whose names are
// not known yet gets its record a moment later, unless other hosts need its hardware address.
func (n *Networks) endpoints(s kv.Snapshot, node string) map[string]record.Endpoint {
	ours := map[string]bool{}
	for _, network := range n.cfg.Host.Networks() {
		ours[network.Name] = network.Origin == model.FromCluster
	}
	all := map[string]record.Endpoint{}
	for _, v := range n.cfg.Host.Attachments() {
		if v.Status != api.Up || !ours[v.Network] || len(v.Endpoint.Addresses) == 0 {
			continue
		}
		key := record.Key(record.Endpoints, v.Network, node, v.Name)
		if names, known := n.containers.of(v, key, s); known || v.Endpoint.MAC != "" {
			all[key] = record.Endpoint{Names: names, Addresses: v.Endpoint.Addresses, MAC: v.Endpoint.MAC}
		}
	}
	return all
}

// changedEndpoints returns what to put and delete, so that the node's records are these.
func changedEndpoints(s kv.Snapshot, published []string, want map[string]record.Endpoint) []kv.Change {
	var changes []kv.Change
	for _, key := range published {
		if _, wanted := want[key]; !wanted {
			changes = append(changes, kv.Change{Key: key})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		value := record.Encode(want[key])
		if e, _ := s.Get(key); !bytes.Equal(e.Value, value) {
			changes = append(changes, kv.Change{Key: key, Value: value})
		}
	}
	return changes
}
