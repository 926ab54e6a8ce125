package ebpf

import (
	"net"
	"net/netip"
	"testing"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// TestAliasPorts compares the ports of aliases with those from which hosts connect.
func TestAliasPorts(t *testing.T) {
	for _, c := range []struct {
		name           string
		local, aliases portRange
		shared         bool
	}{
		{"the kernel's default", portRange{32768, 60999}, portRange{1024, 32767}, false},
		{"a wide range", portRange{10000, 65535}, portRange{1024, 9999}, false},
		{"a low range", portRange{1024, 20000}, portRange{20001, 65535}, false},
		{"all ports", portRange{1024, 65535}, portRange{1024, 32767}, true},
		{"almost all ports", portRange{2048, 65535}, portRange{1024, 32767}, true},
		{"privileged ports too", portRange{1, 65535}, portRange{1024, 32767}, true},
	} {
		if ports, shared := aliasPorts(c.local); ports != c.aliases || shared != c.shared {
			t.Errorf("%s: aliases have the ports %v, shared %v; want %v, %v", c.name, ports, shared, c.aliases, c.shared)
		}
	}
}

// connecting makes the programs' host connect from these ports.
func connecting(tb testing.TB, from portRange) func(*ebpf.CollectionSpec) {
	return func(spec *ebpf.CollectionSpec) {
		tb.Helper()
		if err := setAliases(spec, from); err != nil {
			tb.Fatal(err)
		}
	}
}

// masqueraded is a service with one real server, which sees the host as its client.
func (b *bench) masqueraded(tb testing.TB) Service {
	tb.Helper()
	s := b.served(true, true)
	s.Ring, s.Reals = []uint16{0}, s.Reals[:1]
	s.Reals[0].Flags = RealMasquerade
	b.hold(tb, s)
	return s
}

// TestAliasesAreNotLocalPorts checks that a real server sees clients only with ports from
// which the host does not connect.
func TestAliasesAreNotLocalPorts(t *testing.T) {
	b := newBenchWith(t, forLinks, connecting(t, portRange{10000, 65535}))
	s := b.masqueraded(t)
	for port := range uint16(64) {
		from := netip.AddrPortFrom(client4.Addr(), 40000+port)
		src, _ := ends(b.mustMap(t, "a call", Uplink, b.up, first(true, from, s.Frontends[0]).frame()))
		if src.Port() >= 10000 {
			t.Errorf("the alias of %s is %s, and the host connects from that port", from, src)
		}
	}
}

// TestSharedAliases lets a host that connects from all ports connect to a real server from
// a client's alias. The replies belong to the host until it closes its socket.
func TestSharedAliases(t *testing.T) {
	b := newBenchWith(t, forLinks, connecting(t, portRange{1024, 65535}))
	s := b.masqueraded(t)
	p := first(true, client4, s.Frontends[0])
	p.src, p.dst = ends(b.mustMap(t, "a call", Uplink, b.up, p.frame()))
	answer := p.answer().frame()
	b.mustMap(t, "before the host connects", Sandbox, b.web, answer)
	var c net.Conn
	b.do(t, func() (err error) {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(p.src), net.UDPAddrFromAddrPort(p.dst))
		return err
	})
	b.mustLeave(t, "while the host is connected", Sandbox, b.web, answer)
	c.Close()
	b.mustMap(t, "after the host has closed its socket", Sandbox, b.web, answer)
}

// TestStaleFlowsGiveTheirAliases lets clients use all ports of aliases, at a service and at an endpoint that reaches
// itself. When their flows are stale, other clients get these ports.
func TestStaleFlowsGiveTheirAliases(t *testing.T) {
	for name, at := range map[string]func(*bench) (program string, link int, client, to netip.AddrPort){
		"a service": func(b *bench) (string, int, netip.AddrPort, netip.AddrPort) {
			return Uplink, b.up, client4, b.masqueraded(t).Frontends[0]
		},
		"an endpoint itself": func(b *bench) (string, int, netip.AddrPort, netip.AddrPort) {
			b.publishUsual(t)
			return Sandbox, b.web, netip.AddrPortFrom(webV4, 0), ap("192.0.2.1:5353")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBenchWith(t, forLinks, func(spec *ebpf.CollectionSpec) {
				if err := spec.Variables[bpf.FairleadVarAliasCount].Set(uint32(64)); err != nil {
					t.Fatal(err)
				}
			})
			program, link, client, to := at(b)
			ask := func(port uint16) (answered bool) {
				frame := first(true, netip.AddrPortFrom(client.Addr(), port), to).frame()
				act, out := b.run(t, program, frame, skb{Ifindex: uint32(link)}, 0)
				return act == redirect && isUDP(out)
			}
			for port := range uint16(1000) {
				ask(1024 + port)
			}
			if n := len(b.flows(t)); n != 64 {
				t.Fatalf("there are %d flows with 64 aliases", n)
			}
			for _, f := range b.flows(t) {
				b.alter(t, f, func(f *bpf.FairleadFlow) { f.Seen, f.Tick = f.Seen-uint64(udpAnswered)-1e9, f.Tick-1 })
			}
			for port := range uint16(8) {
				if !ask(40000 + port) {
					t.Errorf("client %d is refused", port)
				}
			}
		})
	}
}
