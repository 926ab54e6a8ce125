package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/inspect"
	"fairlead/internal/plan"
)

// TestClaims expects the other host that answers for a virtual address, and that a
// client's neighbour entry for the address does not change.
func TestClaims(t *testing.T) {
	for name, virtual := range map[string]string{"ipv4": "192.0.2.80", "ipv6": "2001:db8:80::80"} {
		t.Run(name, func(t *testing.T) {
			lan, h, other, client := openTestHost(t), openTestHost(t), openTestHost(t), openTestHost(t)
			lan.run(t, "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
			lan.run(t, "ip", "link", "set", "br0", "up")
			for i, host := range []*Host{h, other, client} {
				wire := fmt.Sprintf("wire%d", i)
				if err := Wire(lan, host, wire, 1500); err != nil {
					t.Fatal(err)
				}
				lan.run(t, "ip", "link", "set", wire, "master", "br0")
				host.run(t, "ip", "addr", "add", fmt.Sprintf("10.9.0.%d/24", i+1), "dev", wire)
				host.run(t, "ip", "link", "set", "lo", "up")
			}
			at := plan.VirtualAddress{Link: "wire0", Addr: netip.MustParseAddr(virtual)}
			if err := h.links.SetVirtual(at); err != nil {
				t.Fatal(err)
			}
			client.run(t, "ip", "neigh", "replace", virtual, "lladdr", h.mac(t, "wire0"), "dev", "wire2", "nud",
				"stale")
			claims := func(timeout time.Duration) []inspect.Claim {
				t.Helper()
				all, err := h.Inspect().Claims(t.Context(),
					[]plan.VirtualAddress{at, {Link: "gone", Addr: at.Addr}, {Link: "lo", Addr: at.Addr}}, timeout)
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			if all := claims(100 * time.Millisecond); len(all) > 0 {
				t.Errorf("want no claims, got %v", all)
			}
			other.run(t, "ip", "addr", "add", virtual, "dev", "wire1", "nodad")
			h.run(t, "ip", "neigh", "replace", "10.9.0.2", "lladdr", other.mac(t, "wire1"), "dev", "wire0", "nud",
				"stale")
			all := claims(time.Minute)
			if len(all) != 1 || all[0].VirtualAddress != at || all[0].By != other.mac(t, "wire1") ||
				!slices.Contains(all[0].Also, netip.MustParseAddr("10.9.0.2")) {
				t.Errorf("want one claim by the other host, got %v", all)
			}
			if known := client.run(t, "ip", "neigh", "show", "to", virtual); !strings.Contains(known,
				h.mac(t, "wire0")) {
				t.Errorf("the client's neighbour entry has changed: %s", known)
			}
		})
	}
}

// mac returns the hardware address of a link.
func (h *Host) mac(t *testing.T, link string) string {
	t.Helper()
	l, err := h.rtnl.LinkByName("", link)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().HardwareAddr.String()
}
