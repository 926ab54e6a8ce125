package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/plan"
)

// TestSourceMark sends datagrams from a sandbox to the host. fl_sandbox marks those with
// the endpoint's address and no others, and the rules see no mark behind `sources`: a
// user's rules may use that bit. Without the mark, the rules look the source up.
func TestSourceMark(t *testing.T) {
	w := newLocalWorld(t)
	if err := w.nft.Transact([]plan.Op{{Object: plan.Table{}}}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []plan.Object{
		plan.Link{Name: "box0", Kind: plan.Veth, MTU: 1500, Owner: "box", IPv6: plan.IPv6Fixed, Peer: "eth0",
			PeerNetns: w.box.Path(), PeerIPv6: plan.IPv6Fixed, Group: plan.SandboxLinks},
		boxIngress,
		plan.Address{Netns: w.box.Path(), Link: "eth0", Prefix: netip.MustParsePrefix("10.9.0.3/24")},
	} {
		if err := w.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	marked := fmt.Sprintf("meta mark & %#x == %#x", plan.SourceValid, plan.SourceValid)
	w.run(t, "nft", fmt.Sprintf(`table inet t {
		chain first { type filter hook prerouting priority -400; udp dport 9 %s counter; }
		chain last { type filter hook input priority 0; udp dport 9 %s counter; }
	}`, marked, marked))
	before := 0
	for from, want := range map[string]int{"10.9.0.2": 1, "10.9.0.3": 0, "fd09::2": 1} {
		to := "10.9.0.1:9"
		if strings.Contains(from, ":") {
			to = "[fd09::1]:9"
		}
		err := w.box.Do(func() error {
			d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
			c, err := d.Dial("udp", to)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte("x"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		all := packetsOf(t, w.run(t, "nft", "list", "chain", "inet", "t", "first"))
		if got := all - before; got != want {
			t.Errorf("%s: %d packets are marked, want %d", from, got, want)
		}
		before = all
	}
	if got := packetsOf(t, w.run(t, "nft", "list", "chain", "inet", "t", "last")); got != 0 {
		t.Errorf("%d packets are marked behind the rules of Fairlead", got)
	}
}

// packetsOf returns the packets that nft(8) shows for a rule.
func packetsOf(t *testing.T, text string) (n int) {
	t.Helper()
	_, text, _ = strings.Cut(text, "packets ")
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return n
}
