package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"

	"fairlead/internal/explain/flow"
	"fairlead/internal/kernel/kerneltest"
)

// explained explains a flow between sandboxes of two hosts.
func (l *lan) explained(h *host, from, to box) (e flow.Explanation) {
	l.Helper()
	text := h.Run("explain", from.name, "to", to.addr.String()+":80", "-o", "json")
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.Further == nil {
		l.Fatalf("explain: %v\n%s", err, text)
	}
	return e
}

// TestExplainAcrossHosts explains flows to a sandbox of another host: one that is delivered, one that is
// dropped there, and one whose host does not answer.
func TestExplainAcrossHosts(t *testing.T) {
	for driver, arrives := range map[string]string{"vxlan": "arrives through the tunnel",
		"routed": "arrives from the host"} {
		t.Run(driver, func(t *testing.T) {
			l := newLAN(t)
			l.joined()
			one, two := l.hosts[0], l.hosts[1]
			two.Run("network", "create", "shop", "--cluster", "--driver", driver, "--subnet", "10.9.0.0/16")
			l.until("host1 has the network", one.has)
			l.until("host2 has the network", two.has)
			from, to := l.box(one), l.box(two)
			l.reaches(from, to)
			e := l.explained(one, from, to)
			if p := e.Further; e.Outcome != flow.Leaves || p.Node != "host2" || p.Outcome != string(flow.Delivered) ||
				len(p.Steps) < 2 || !strings.Contains(p.Steps[0].What, arrives) ||
				strings.Contains(strings.Join(p.Caveats, " "), "neigh_suppress") {
				t.Errorf("a flow to host2: %s %+v", e.Outcome, p)
			}
			if text := one.Run("explain", from.name, "to", to.addr.String()+":80"); !strings.Contains(text,
				"Node host2 reports:") || !strings.Contains(text, arrives) {
				t.Errorf("explain prints\n%s", text)
			}
			kerneltest.Run(t, to.Namespace, "nft", "table inet t { chain c { type filter hook input priority 0; "+
				"tcp dport 80 counter drop comment \"closed\"; }; }")
			if p := l.explained(one, from, to).Further; p.Outcome != string(flow.Dropped) {
				t.Errorf("a flow that host2's sandbox drops: %+v", p)
			}
			two.Kill()
			if p := l.explained(one, from, to).Further; !strings.Contains(p.Problem, "node host2 does not answer") {
				t.Errorf("a flow to a host without a daemon: %+v", p)
			}
		})
	}
}

// TestExplainToVirtualAddress explains a flow to a virtual address that another host holds.
func TestExplainToVirtualAddress(t *testing.T) {
	v := newVirtual(t, "192.0.2.10/24", pauseless)
	holder := v.held()
	from := v.hosts[0]
	if from == holder {
		from = v.hosts[1]
	}
	var e flow.Explanation
	text := from.Run("explain", "host", "to", v.addr.String()+":80", "-o", "json")
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.Further == nil {
		t.Fatalf("explain: %v\n%s", err, text)
	}
	if p := e.Further; e.Outcome != flow.Leaves || p.Node != holder.name || p.Outcome != string(flow.Delivered) {
		t.Errorf("a flow to an address that %s holds: %s %+v", holder.name, e.Outcome, p)
	}
}
