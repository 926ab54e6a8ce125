package machines_test

import (
	"strings"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/lab/result"
)

// TestAttach: sandboxes are on the network between the machines, and nothing that the
// laboratory makes there sends to all machines.
func TestAttach(t *testing.T) {
	t.Parallel()
	client, server, between := machines(t)
	countMulticast(t, between, client, server)
	_, token := startAgent(t, server)
	rep := report(t, client, token, "attach", "--workload", "tcp-bulk-both-1", "--duration", "100ms")
	measured(t, rep, "host", "bridge", "routed", "macvlan", "hand-macvlan", "vxlan", "hand-vxlan", "vxlan-2", "device",
		"hand-device")
	why := map[string]string{}
	for _, u := range rep.Unavailable {
		why[u.Path] = u.Reason
	}
	for path, want := range map[string]string{"ipvlan": "ipvlan link on a macvlan", "cni-macvlan": "announce it"} {
		if !strings.Contains(why[path], want) {
			t.Errorf("path %s is not measured because %q, want %q", path, why[path], want)
		}
	}
	if sent := kerneltest.Run(t, between, "nft", "list", "counter", "bridge", "watch", "multicast"); !strings.Contains(
		sent, "packets 0 ") {
		t.Errorf("frames to all machines: %s", sent)
	}
}

// TestFamily6: the same over IPv6.
func TestFamily6(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	_, token := startAgent(t, server)
	rep := report(t, client, token, "attach", "host", "bridge", "routed", "macvlan", "vxlan", "device", "--family", "6",
		"--workload", "tcp-rr", "--duration", "100ms")
	measured(t, rep, "host", "bridge", "routed", "macvlan", "vxlan", "device")
	if rep.Family != result.IPv6 {
		t.Errorf("the report has family %d", rep.Family)
	}
}

// countMulticast counts frames to several machines, except those of the machines' own
// addresses.
func countMulticast(t *testing.T, between *netns.Namespace, machines ...*netns.Namespace) {
	t.Helper()
	var own []string
	for _, m := range machines {
		own = append(own, strings.Fields(kerneltest.Run(t, m, "ip", "-br", "link", "show", "eth0"))[2])
	}
	kerneltest.Run(t, between, "nft", "add table bridge watch; add counter bridge watch multicast;"+
		"add chain bridge watch passing { type filter hook prerouting priority 0; };"+
		"add rule bridge watch passing ether saddr != { "+strings.Join(own, ", ")+
		" } ether daddr & 01:00:00:00:00:00 == 01:00:00:00:00:00 counter name multicast")
}
