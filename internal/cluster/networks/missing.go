package networks

import (
	"cmp"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cluster/block"
	"fairlead/internal/cluster/record"
)

// missing returns why this host does not have a network of the cluster; nil if it has it, or if the cluster does not
// have it. The error is a Fault with code Conflict.
func (n *Networks) missing(name string) error {
	if n.host(name).Name != "" {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.snapshot == nil {
		return nil
	}
	if _, exists := n.snapshot.Get(record.Key(record.Networks, name)); !exists {
		return nil
	}
	why := "it has no block of the network's addresses yet: try again in a moment"
	self, _, err := record.Get[record.Node](n.snapshot, record.Key(record.Nodes, n.self.Node))
	if err == nil && self.Drained {
		why = block.ErrDrained.Error()
	}
	return api.Faultf(api.Conflict, "this host does not have network %s of the cluster: %s", name,
		cmp.Or(n.problemsOf(name), why))
}

// problemsOf returns the problems of a network on this host in one line. The caller has the mutex.
func (n *Networks) problemsOf(name string) string {
	var found []string
	for _, all := range slices.Concat(n.derived.problems, n.refused, n.publisher.Problems()) {
		for line := range strings.Lines(all) { // failed transactions are joined
			line = strings.TrimSpace(line)
			for _, about := range []string{"network " + name + ": ", "claim addresses of network " + name + ": "} {
				if reason, is := strings.CutPrefix(line, about); is {
					found = append(found, reason)
				}
			}
		}
	}
	return strings.Join(found, "; ")
}
