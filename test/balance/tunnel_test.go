package balance_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/test/place"
	"fairlead/test/shell"
	"fairlead/test/unwrap"

	"golang.org/x/sys/unix"
)

// tunnels checks that a server that decapsulates packets for the virtual address answers directly
// and receives the client's address. A client whose packets are too large for the tunnel gets an
// ICMP error.
func (l *lan) tunnels(proto model.Proto, v4 bool) { l.tunnelsBy(proto, v4, model.Tunnel{}) }

// tunnelsInUDP checks tunnels in UDP, with every kind of checksum.
func (l *lan) tunnelsInUDP(proto model.Proto, v4 bool) {
	all := []model.Tunnel{{Type: model.TunnelGUE, Port: unwrap.GUE}}
	if l.plane == model.PlaneIPVS {
		for _, sum := range []model.TunnelChecksum{model.TunnelSummed, model.TunnelRemoteSummed} {
			all = append(all, model.Tunnel{Type: model.TunnelGUE, Port: unwrap.GUE, Checksum: sum})
		}
	}
	l.tunnelsBy(proto, v4, all...)
}

// tunnelsBy runs a test for each type of tunnel. One kind of tunnel endpoint must decapsulate all
// of them.
func (l *lan) tunnelsBy(proto model.Proto, v4 bool, tunnels ...model.Tunnel) {
	for name := range far {
		l.unwraps(name, tunnels[0], v4)
	}
	for _, tunnel := range tunnels {
		v := l.service(proto, v4, "far1", "far2")
		v.Forward, v.Tunnel = model.ForwardTunnel, tunnel
		for i := range v.Reals {
			v.Reals[i].Port = 0
		}
		l.set(v)
		l.reaches(40, proto, v4, "far1", "far2")
		if tunnel.Checksum != model.TunnelRemoteSummed || proto == model.UDP { // see docs/guide/planes.md
			l.saysMuchInTunnel(proto, v4)
		}
	}
}

// reaches fails the test unless exactly the named servers answer a client that connects n times to
// the virtual address from its address on the LAN, and receive that address.
func (l *lan) reaches(n int, proto model.Proto, v4 bool, names ...string) {
	l.Helper()
	by := map[string]int{}
	for range n {
		t, err := l.dialFrom(l.DoClient, onLAN(v4), proto, v4, 8080)
		if err != nil {
			l.Fatal(err)
		}
		s := t.hears()
		if by[s.by]++; s.sees != onLAN(v4) || s.port != 8080 {
			l.Errorf("%s receives the request at port %d from %s", s.by, s.port, s.sees)
		}
	}
	l.only(by, names...)
}

// saysMuchInTunnel sends a line that is too long for one packet in the tunnel.
func (l *lan) saysMuchInTunnel(proto model.Proto, v4 bool) {
	l.Helper()
	t, err := l.dialFrom(l.DoClient, onLAN(v4), proto, v4, 8080)
	if err != nil {
		l.Fatal(err)
	}
	size := 1 << 20
	if proto == model.UDP { // a size that fits the link's MTU but not the tunnel's
		size = map[bool]int{true: 1465, false: 1445}[v4]
	}
	t.saysMuch(size)
}

// tunnelsToSandboxes checks that Fairlead's sandboxes get packets without a tunnel.
func (l *lan) tunnelsToSandboxes(proto model.Proto, v4 bool) {
	v := l.service(proto, v4, boxes...)
	v.Forward = model.ForwardTunnel
	l.toSandboxes(v, proto, v4)
}

// saysMuch sends a long line until it is answered: the first datagram that is too large is lost,
// and the kernel then knows the path MTU.
func (t talk) saysMuch(length int) {
	t.l.Helper()
	line := append(bytes.Repeat([]byte("x"), length-1), '\n')
	for deadline := time.Now().Add(place.Timeout); ; {
		if err := t.conn.SetDeadline(time.Now().Add(place.Timeout)); err != nil {
			t.l.Fatal(err)
		}
		_, err := t.conn.Write(line)
		if err == nil {
			_, err = t.lines.ReadString('\n')
		}
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EMSGSIZE) || time.Now().After(deadline) {
			t.l.Fatalf("a line of %d bytes: %v", length, err)
		}
	}
}

// unwraps makes a server of the LAN decapsulate packets until the test ends.
func (l *lan) unwraps(name string, by model.Tunnel, v4 bool) {
	l.Helper()
	decapsulate(l, l.servers[name].Do, "lan0", by, v4)
}

// decapsulate makes a machine decapsulate packets that arrive on a link, and accept the inner ones,
// until the test ends.
func decapsulate(t testing.TB, in place.Place, link string, by model.Tunnel, v4 bool) {
	t.Helper()
	device := map[bool]string{true: "tunl0", false: "ip6tnl0"}[v4]
	quiet := "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2; "
	if shell.Run(t, in, "ip -o link show "+device+" 2>/dev/null || true") == "" {
		end, err := unwrap.On(in, link)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end.Close() })
		device = "lo"
	} else if by.Type == model.TunnelGUE {
		port := fmt.Sprintf("port %d%s", by.Port, map[bool]string{true: "", false: " -6"}[v4])
		shell.Run(t, in, "ip fou add "+port+" gue")
		t.Cleanup(func() { shell.Run(t, in, "ip fou del "+port) })
	}
	address := fmt.Sprintf("%s/%d dev %s", vip(v4), vip(v4).BitLen(), device)
	shell.Run(t, in, quiet+"ip link set "+device+" up; ip addr replace "+address)
	t.Cleanup(func() { shell.Run(t, in, "ip addr del "+address) })
}

// onLAN returns the client's address on the LAN. Answers to it do not pass through the host.
func onLAN(v4 bool) netip.Addr {
	if v4 {
		return netip.MustParseAddr("203.0.113.100")
	}
	return netip.MustParseAddr("2001:db8:113::100")
}
