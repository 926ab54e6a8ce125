package daemon_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"
)

// TestOutboundAuto adds rules of other programs that would decide about outbound connections,
// with nftables and with iptables, and removes them. While there is one, the connections obey
// it. Rules about other packets change nothing.
func TestOutboundAuto(t *testing.T) {
	w := newLANWorld(t)
	w.sh("nft add table inet others; nft add chain inet others c '{ type filter hook forward priority 0; " +
		"policy drop; }'; nft add rule inet others c iifname docker0 drop; nft add rule inet others c accept")
	w.start()
	events := w.FollowEvents(t.Context())
	n := lan
	n.Outbound = model.OutboundAuto
	w.network(n)
	b := w.watchedSandbox()
	w.attach(api.AttachRequest{Endpoint: model.Endpoint{Name: "web", Network: n.Name, Sandbox: b.pid}})
	place.Answer(t, w.client.Do, "198.51.100.1:9000", func(r place.Request) string { return r.Client.String() })
	bypasses := func(why string) {
		t.Helper()
		w.awaitEvent(events, api.OutboundChosen, "network "+n.Name)
		for _, network := range []string{"tcp", "udp"} {
			from, err := b.asks(network)
			if err != nil || !plan.IsOutboundPort(from.Port()) {
				t.Errorf("%s: %s comes from %s, %v", why, network, from, err)
			}
		}
		if got := w.Outbound()[n.Name]; !strings.Contains(got, "outbound ebpf") {
			t.Errorf("%s: the choice is %q", why, got)
		}
	}

	bypasses("without rules")
	for _, rule := range []struct{ add, remove, cause string }{
		{"nft add table inet t; nft add chain inet t c '{ type filter hook forward priority 0; }'; " +
			"nft add rule inet t c ip daddr 198.51.100.1 drop", "nft delete table inet t", "chain c (inet t)"},
		{"iptables -I FORWARD -d 198.51.100.0/24 -j DROP", "iptables -D FORWARD -d 198.51.100.0/24 -j DROP",
			"chain FORWARD (ip filter)"},
	} {
		w.sh(rule.add)
		w.awaitEvent(events, api.OutboundChosen, "network "+n.Name)
		for _, network := range []string{"tcp", "udp"} {
			if from, err := b.asks(network); err == nil {
				t.Errorf("%s: %s comes from %s", rule.add, network, from)
			}
		}
		if got := w.Outbound()[n.Name]; !strings.Contains(got, rule.cause) {
			t.Errorf("%s: the choice is %q", rule.add, got)
		}
		w.sh(rule.remove)
		bypasses(rule.remove)
	}
	b.kill()
}

// asks returns the address and port from which a server on the LAN sees the sandbox.
func (b watchedSandbox) asks(network string) (netip.AddrPort, error) {
	const wait = 300 * time.Millisecond
	c, err := place.Dial(b.in, network, "198.51.100.1:9000", wait)
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(wait))
	if _, err := c.Write([]byte("who am I\n")); err != nil {
		return netip.AddrPort{}, err
	}
	answer := make([]byte, 256)
	size, err := c.Read(answer)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.ParseAddrPort(strings.TrimSpace(string(answer[:size])))
}
