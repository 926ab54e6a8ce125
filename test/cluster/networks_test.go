package cluster_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/test/place"
	"fairlead/test/process"

	"github.com/miekg/dns"
)

// box is a sandbox of a host that is attached to network shop, and answers at port 80.
type box struct {
	*netns.Namespace
	name string
	addr netip.Addr
}

// attached returns the attachment of a sandbox with one address.
func (l *lan) attached(h *host, path string) api.View {
	l.Helper()
	all, err := h.Client.Attachments(l.Context())
	i := slices.IndexFunc(all, func(v api.View) bool {
		return v.Sandbox == path && len(v.Endpoint.Addresses) == 1
	})
	if err != nil || i < 0 {
		l.Fatalf("%s has the attachments %+v, %v", h.name, all, err)
	}
	return all[i]
}

// box attaches a sandbox.
func (l *lan) box(h *host) box {
	l.Helper()
	b := box{Namespace: kerneltest.Netns(l)}
	path := process.Seen(b.Path())
	h.Run("attach", "shop", path)
	v := l.attached(h, path)
	b.name, b.addr = v.Name, v.Endpoint.Addresses[0]
	place.Serve(l, b.Do, ":80", place.Hangup)
	return b
}

// reaches fails the test unless a sandbox connects to another one.
func (l *lan) reaches(from, to box) {
	l.Helper()
	conn, err := place.Dial(from.Do, "tcp", net.JoinHostPort(to.addr.String(), "80"), place.Timeout)
	if err != nil {
		l.Errorf("%s does not reach %s: %v", from.addr, to.addr, err)
		return
	}
	conn.Close()
}

// resolves fails the test unless a sandbox gets another one's address for its name from its own host.
func (l *lan) resolves(from, to box) {
	l.Helper()
	var got []string
	l.until(to.name+" has an address", func() bool { got = l.lookUp(from, to); return len(got) > 0 })
	if len(got) != 1 || got[0] != to.addr.String() {
		l.Errorf("%s: the answer for %s is %v, want %s", from.addr, to.name, got, to.addr)
	}
}

// lookUp returns the addresses of a sandbox's name that another one gets from its own host, if any.
func (l *lan) lookUp(from, to box) (addresses []string) {
	l.Helper()
	question := new(dns.Msg).SetQuestion(to.name+".", dns.TypeA)
	_ = from.Do(func() error { // without an answer there is no address
		r, err := dns.Exchange(question, net.JoinHostPort(from.router(l), "53"))
		if err != nil {
			return err
		}
		for _, record := range r.Answer {
			if a, ok := record.(*dns.A); ok {
				addresses = append(addresses, a.A.String())
			} else {
				addresses = append(addresses, record.String())
			}
		}
		return nil
	})
	return addresses
}

// router returns the sandbox's default gateway, which is the host's address in network shop.
func (b box) router(l *lan) string {
	l.Helper()
	fields := strings.Fields(kerneltest.Run(l, b.Namespace, "ip", "route", "show", "default"))
	if len(fields) < 3 {
		l.Fatalf("%s has no default route: %q", b.addr, fields)
	}
	return fields[2]
}

// has reports whether the host has network shop.
func (h *host) has() bool { return h.hasNetwork("shop") }

// hasNetwork reports whether the host has a network.
func (h *host) hasNetwork(name string) bool {
	return slices.ContainsFunc(ask(h, admin.ListNetworks).Networks,
		func(n model.Network) bool { return n.Name == name })
}

// listed fails the test unless `network ls` of the host shows network shop, or does not show it.
func (l *lan) listed(h *host, want bool) {
	l.Helper()
	if said := h.Run("network", "ls"); strings.Contains(said, "shop") != want {
		l.Errorf("%s lists network shop: want %v in\n%s", h.name, want, said)
	}
}

// TestNetworks creates a network on one host. Sandboxes of all hosts reach each other, also those that
// start while etcd does not answer, and after a restart of their daemon.
func TestNetworks(t *testing.T) {
	for _, driver := range []string{"vxlan", "routed"} {
		t.Run(driver, func(t *testing.T) {
			l := newLAN(t)
			l.joined()
			one, two := l.hosts[0], l.hosts[1]
			l.refused(one, "want routed or vxlan", "network", "create", "shop", "--cluster", "--subnet", "10.9.0.0/16")
			two.Run("network", "create", "shop", "--cluster", "--driver", driver, "--subnet", "10.9.0.0/16",
				"--block-size", "28")
			l.refused(two, "the cluster has it already", "network", "create", "shop", "--cluster", "--driver", driver,
				"--subnet", "10.9.0.0/16")
			var all []box
			for _, h := range l.hosts {
				l.until(h.name+" has the network", h.has)
				l.listed(h, true)
				l.refused(h, "belongs to the cluster", "network", "rm", "shop")
				all = append(all, l.box(h))
			}
			for _, from := range all {
				for _, to := range all {
					l.reaches(from, to)
					l.resolves(from, to)
				}
			}
			l.etcd.Members[0].Kill()
			two.Stop()
			two.Start()
			l.until("host2 has the network from the disk", two.has)
			l.listed(two, true)
			late := l.box(two)
			l.reaches(all[0], late)
			l.reaches(late, all[2])
		})
	}
}

// TestNetworkIsRemoved removes a network from the cluster while a sandbox is attached to it.
func TestNetworkIsRemoved(t *testing.T) {
	l := newLAN(t)
	l.joined()
	one, two := l.hosts[0], l.hosts[1]
	one.Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.9.0.0/16")
	l.until("host2 has the network", two.has)
	l.until("host1 has the network", one.has)
	b := l.box(two)
	one.Run("network", "rm", "shop", "--cluster")
	l.until("host1 has no network", func() bool { return !one.has() })
	l.listed(one, false)
	l.listed(two, true) // it is the network of a sandbox
	two.Run("detach", process.Seen(b.Path()))
	l.refused(one, "the cluster does not have it", "network", "rm", "shop", "--cluster")
}
