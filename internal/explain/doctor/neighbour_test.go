package doctor_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/shell"
)

// TestNeighbours: a host on the LAN that answers for a service's address is a
// problem; a host that has the address but does not answer for it is not.
func TestNeighbours(t *testing.T) {
	const v4, v6, quiet = "198.51.100.10", "2001:db8:9::80", "sysctl -qw net.ipv4.conf.all.arp_ignore=1"
	for _, c := range []struct {
		name, address, link, set string
		answers                  bool
	}{
		{name: "two balancers", address: v4, link: "uplink", answers: true},
		{name: "two balancers, IPv6", address: v6, link: "uplink", answers: true},
		{name: "a real server whose host answers ARP", address: v4, link: "lo", answers: true},
		{name: "a real server whose host does not answer ARP", address: v4, link: "lo", set: quiet},
		{name: "a real server, IPv6", address: v6, link: "lo"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, other := newRoom(t), newRoom(t)
			for _, in := range []*room{r, other} {
				shell.Run(t, in.Do, "ip link del uplink")
			}
			if err := kernel.Wire(r.Host, other.Host, "uplink", 1500); err != nil {
				t.Fatal(err)
			}
			shell.Run(t, other.Do, "ip address add "+c.address+" dev "+c.link+" nodad\n"+c.set)
			v := site
			v.Addresses, v.Interface, v.Forward = []netip.Addr{netip.MustParseAddr(c.address)}, "uplink",
				model.ForwardDirect
			timeout := 200 * time.Millisecond
			if c.answers {
				timeout = time.Minute // the first answer ends the wait
			}
			r.adjust = func(h *doctor.Host) {
				h.Balanced = []api.ServiceView{{VirtualService: v}}
				var err error
				if h.Claims, err = r.Inspect().Claims(t.Context(), h.Claimable(), timeout); err != nil {
					t.Fatal(err)
				}
			}
			found := r.run("service-address")
			if (len(found) == 1) != c.answers {
				t.Fatalf("found %+v", found)
			}
			if !c.answers {
				return
			}
			if found[0].Severity != doctor.Problem || !strings.Contains(found[0].Seen, c.address) ||
				!strings.Contains(found[0].Fix, "--forward local") {
				t.Errorf("found %+v", found[0])
			}
			_, command, _ := strings.Cut(found[0].Fix, "remove the address from it: ")
			command, _, _ = strings.Cut(command, ";")
			length := fmt.Sprint(netip.MustParseAddr(c.address).BitLen())
			other.sh(strings.NewReplacer("LENGTH", length, "LINK", c.link).Replace(command))
			timeout = 200 * time.Millisecond
			if found := r.run("service-address"); len(found) > 0 {
				t.Errorf("found after the fix: %+v", found)
			}
		})
	}
}

// runsPart runs the command in a fix for a conflict about an address: it removes the address
// from the host, or keeps the router's entry in the neighbour table.
func (r *room) runsPart(check, fix, address string) {
	r.t.Helper()
	const mac = "02:00:00:00:00:01"
	show := map[string]string{"address-conflict": "ip -o address show to ",
		"gateway-conflict": "ip neigh show nud permanent to "}[check]
	for _, before := range []string{"to remove it from this host: ", "until then: "} {
		if _, command, found := strings.Cut(fix, before); found {
			r.sh(strings.ReplaceAll(command, "MAC-OF-THE-ROUTER", mac))
		}
	}
	now := shell.Run(r.t, r.Do, show+address)
	kept := strings.Contains(now, mac)
	if len(r.ran) != 1 || kept != (check == "gateway-conflict") || !kept && now != "" {
		r.t.Errorf("after %q the host has %q", r.ran, now)
	}
}

// TestConflicts: a host on the LAN that answers for an address of this host is a
// problem, and so are two hosts that answer for the default gateway's address.
func TestConflicts(t *testing.T) {
	const second = "ip link add second link uplink type macvlan mode bridge; ip link set second up; ip address add %s dev second nodad\n"
	for _, c := range []struct {
		name, address, set, check string
		answers                   bool
	}{
		{name: "an address of this host", address: "192.0.2.10/24", check: "address-conflict", answers: true},
		{name: "an IPv6 address of this host", address: "2001:db8:9::10/64", check: "address-conflict", answers: true},
		{name: "another address", address: "192.0.2.11/24", check: "address-conflict"},
		{name: "one router", address: "192.0.2.1/24", check: "gateway-conflict"},
		{name: "two routers", address: "192.0.2.1/24", set: second, check: "gateway-conflict", answers: true},
		{name: "two routers, IPv6", address: "2001:db8:9::1/64", set: second, check: "gateway-conflict", answers: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, other := newRoom(t), newRoom(t)
			for _, in := range []*room{r, other} {
				shell.Run(t, in.Do, "ip link del uplink")
			}
			if err := kernel.Wire(r.Host, other.Host, "uplink", 1500); err != nil {
				t.Fatal(err)
			}
			shell.Run(t, r.Do,
				"ip address add 192.0.2.10/24 dev uplink; ip address add 2001:db8:9::10/64 dev uplink nodad\n"+
					"ip route add default via 192.0.2.1; ip route add default via 2001:db8:9::1")
			shell.Run(t, other.Do, "ip address add "+c.address+" dev uplink nodad\n"+
				strings.ReplaceAll(c.set, "%s", c.address))
			r.adjust = func(h *doctor.Host) {
				of := slices.DeleteFunc(h.Asked(),
					func(a plan.VirtualAddress) bool { return a.Addr.String() != strings.Split(c.address, "/")[0] })
				timeout := 200 * time.Millisecond
				if c.answers {
					timeout = time.Minute // the first answer ends the wait
				}
				var err error
				if h.Claims, err = r.Inspect().Claims(t.Context(), of, timeout); err != nil || len(of) == 0 &&
					c.answers {
					t.Fatal(of, err)
				}
			}
			found := r.run(c.check)
			if (len(found) == 1) != c.answers {
				t.Fatalf("found %+v", found)
			}
			if c.answers && (found[0].Severity != doctor.Problem ||
				!strings.Contains(found[0].Seen, strings.Split(c.address, "/")[0])) {
				t.Errorf("found %+v", found[0])
			}
			if c.answers {
				r.runsPart(c.check, found[0].Fix, strings.Split(c.address, "/")[0])
			}
		})
	}
}
