package doctor_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/daemon"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/test/shell"
)

// TestNeighbours: a host on the LAN that answers for a service's address is a
// problem, and one that only has it is none.
func TestNeighbours(t *testing.T) {
	const v4, v6, quiet = "198.51.100.10", "2001:db8:9::80", "sysctl -qw net.ipv4.conf.all.arp_ignore=1"
	for _, c := range []struct {
		name, address, link, set string
		answers                  bool
	}{
		{name: "two balancers", address: v4, link: "uplink", answers: true},
		{name: "two balancers of IPv6", address: v6, link: "uplink", answers: true},
		{name: "a real server whose host tells of it", address: v4, link: "lo", answers: true},
		{name: "a real server whose host is quiet", address: v4, link: "lo", set: quiet},
		{name: "a real server of IPv6", address: v6, link: "lo"},
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
			v.Addresses, v.Interface, v.Forward = []netip.Addr{netip.MustParseAddr(c.address)}, "uplink", model.ForwardDirect
			patience := 200 * time.Millisecond
			if c.answers {
				patience = time.Minute // an answer ends it
			}
			r.tell = func(h *doctor.Host) {
				h.Balanced = []daemon.ServiceView{{VirtualService: v}}
				var err error
				if h.Claims, err = r.Claims(t.Context(), h.Claimable(), patience); err != nil {
					t.Fatal(err)
				}
			}
			found := r.look("service-address")
			if (len(found) == 1) != c.answers {
				t.Fatalf("found %+v", found)
			}
			if c.answers && (found[0].Severity != doctor.Problem || !strings.Contains(found[0].Seen, c.address) || !strings.Contains(found[0].Mend, "--forward local")) {
				t.Errorf("found %+v", found[0])
			}
		})
	}
}
