package neighbour_test

import (
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/neighbour"
	"fairlead/internal/kernel/netns"
)

// TestAskReadsDelayedAnswers asks with a timeout of 0: answers that have arrived by
// the time of reading count.
func TestAskReadsDelayedAnswers(t *testing.T) {
	_, asker := open(t)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		claims, err := asker.Ask(t.Context(), []netip.Addr{other}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(claims) == 1 && claims[0].Address == other {
			return
		}
	}
	t.Error("no host has claimed the address")
}

// TestHostDropsRequests adds a rule that drops the requests where they leave the host: that no other host answers is
// not known then.
func TestHostDropsRequests(t *testing.T) {
	ns, asker := open(t)
	if err := ns.Do(func() error {
		return exec.Command("nft", "add table netdev t; add chain netdev t out { type filter hook egress device wire0 "+
			"priority 0; policy drop; }").Run()
	}); err != nil {
		t.Fatal(err)
	}
	claims, err := asker.Ask(t.Context(), []netip.Addr{other}, 0)
	if err == nil || !strings.Contains(err.Error(), "wire0: this host drops its own requests") ||
		!strings.Contains(err.Error(), "let ARP and Neighbor Discovery pass") {
		t.Errorf("got %v, error %v", claims, err)
	}
}

// TestHostDropsOneRequest adds a rule that drops the requests for one of two addresses. The owner of the other one is known.
func TestHostDropsOneRequest(t *testing.T) {
	ns, asker := open(t)
	if err := ns.Do(func() error {
		return exec.Command("nft", "add table netdev t; add chain netdev t out { type filter hook egress device wire0 "+
			"priority 0; }; add rule netdev t out ether type arp arp daddr ip 192.0.2.81 drop").Run()
	}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		claims, err := asker.Ask(t.Context(), []netip.Addr{other, netip.MustParseAddr("192.0.2.81")}, 0)
		if err == nil {
			t.Fatalf("got %v, and no error about the dropped request", claims)
		}
		if len(claims) == 1 && claims[0].Address == other {
			return
		}
	}
	t.Error("no host has claimed the address whose requests pass")
}

// other is the address of another host.
var other = netip.MustParseAddr("192.0.2.80")

// open returns a host, with a socket at its wire to the other host.
func open(t *testing.T) (ns *netns.Namespace, asker *neighbour.Asker) {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	if err := ns.Do(func() error {
		const links = "ip link add wire0 type veth peer name wire1; ip link add link wire1 name other type macvlan mode private;" +
			" ip addr add 192.0.2.80/24 dev other; ip link set wire0 up; ip link set wire1 up; ip link set other up"
		if err := exec.Command("sh", "-ec", links).Run(); err != nil {
			return err
		}
		link, err := net.InterfaceByName("wire0")
		if err == nil {
			asker, err = neighbour.Open(link, true)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { asker.Close() })
	return ns, asker
}
