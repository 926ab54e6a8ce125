package networks_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"fairlead/internal/api"
	"fairlead/internal/cluster/block"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// TestNetworkWithoutBlock attaches to a network on a host that has no block of it. The error says why.
func TestNetworkWithoutBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.put(w.clients[2], "nodes/n2", record.Node{ID: "n2", Name: "n2", Drained: true})
		refused := func(node int, want string) {
			t.Helper()
			_, err := w.every[node].ReserveAddresses(t.Context(), "web", nil)
			if api.CodeOf(err) != api.Conflict || !strings.Contains(err.Error(),
				"this host does not have network web of the cluster: "+want) {
				t.Errorf("attach on node %d: %v, want %q", node, err, want)
			}
		}
		n := model.Network{Name: "web", Driver: model.DriverVXLAN,
			Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/28")}}}
		if err := block.Create(w.Context(), w.Client(), w.Snapshot(), n, []int{28}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		without := 0
		if len(w.hosts[0].Networks()) > 0 {
			without = 1
		}
		w.put(w.clients[0], record.Key(record.Endpoints, "web", "n9", "x"), record.Endpoint{}) // another snapshot
		w.settle()
		refused(without, "subnet 10.9.0.0/28: all its blocks belong to nodes")
		refused(2, "this host is drained")
		for _, name := range []string{"web", "absent"} { // the daemon reports that there is no such network
			if done, err := w.every[1-without].ReserveAddresses(t.Context(), name, nil); err != nil {
				t.Errorf("attach to %s: %v", name, err)
			} else {
				done()
			}
		}
	})
}
