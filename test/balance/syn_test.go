package balance_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"

	"fairlead/internal/model"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// synCount returns the number of SYNs sent into the connections of each service, which
// FAIRLEAD_SYNS overrides, and the number of these connections, which FAIRLEAD_HELD overrides.
func synCount(t testing.TB) (syns, count int) {
	t.Helper()
	syns, err := strconv.Atoi(cmp.Or(os.Getenv("FAIRLEAD_SYNS"), "200"))
	if err != nil {
		t.Fatalf("read FAIRLEAD_SYNS: %v", err)
	}
	count, err = strconv.Atoi(cmp.Or(os.Getenv("FAIRLEAD_HELD"), "20"))
	if err != nil {
		t.Fatalf("read FAIRLEAD_HELD: %v", err)
	}
	return syns, count
}

// forwarded lists services by forwarding method, scheduler and real servers.
var forwarded = []struct {
	forward   model.Forward
	scheduler model.Scheduler
	servers   []string
}{
	{model.ForwardNAT, model.MaglevHashing, boxes},
	{model.ForwardNAT, model.RoundRobin, boxes},
	{model.ForwardNAT, model.RoundRobin, []string{"far1", "far2"}},
	{model.ForwardDirect, model.RoundRobin, []string{"far1", "far2"}},
	{model.ForwardTunnel, model.RoundRobin, []string{"far1", "far2"}},
}

// eachForward sets each of those services that the data plane supports, one after the other, and
// calls the function with a suitable client address.
func (l *lan) eachForward(proto model.Proto, v4 bool, try func(name string, local netip.Addr)) {
	l.Helper()
	for name := range far {
		if slices.Contains(can[l.plane], "tunnel") {
			l.unwraps(name, model.Tunnel{}, v4)
		} else {
			l.prepare(name, v4)
		}
	}
	for _, c := range forwarded {
		local := clientAddr(v4)
		v := l.service(proto, v4, c.servers...)
		v.Forward, v.Scheduler = c.forward, c.scheduler
		if c.forward != model.ForwardNAT {
			if !slices.Contains(can[l.plane], string(c.forward)) {
				continue
			}
			local = onLAN(v4)
			for i := range v.Reals {
				v.Reals[i].Port = 0
			}
		}
		l.set(v)
		try(fmt.Sprintf("%s, %s to %s", c.forward, c.scheduler, c.servers), local)
	}
}

// hold opens conversations from an address.
func (l *lan) hold(proto model.Proto, v4 bool, local netip.Addr, n int) []conversation {
	l.Helper()
	var all []conversation
	for range n {
		t, err := l.dialFrom(l.DoClient, local, proto, v4, 8080)
		if err != nil {
			l.Fatal(err)
		}
		all = append(all, conversation{t, t.hears().by})
	}
	return all
}

// forged checks that bare SYNs with the addresses and ports of open connections and any sequence
// number do not end these connections, with every forwarding method: the real server sends a
// challenge ACK.
func (l *lan) forged(proto model.Proto, v4 bool) {
	if proto == model.UDP {
		return // UDP has no SYNs
	}
	syns, count := synCount(l)
	l.eachForward(proto, v4, func(name string, local netip.Addr) {
		talks := l.hold(proto, v4, local, count)
		l.synInto(talks, syns)
		broken := 0
		for _, t := range talks {
			if s, err := t.ask(); err != nil || s.by != t.with {
				broken++
			}
		}
		if broken > 0 {
			l.Errorf("%s: %d SYNs break %d of %d connections", name, syns, broken, count)
		}
	})
}

// synInto sends bare SYNs with random sequence numbers from the client's side,
// each with the addresses and ports of one of the connections.
func (l *lan) synInto(talks []conversation, n int) {
	l.Helper()
	err := l.DoClient(func() error {
		for range n {
			conn := talks[rand.IntN(len(talks))].conn
			from, to := netip.MustParseAddrPort(conn.LocalAddr().String()),
				netip.MustParseAddrPort(conn.RemoteAddr().String())
			if err := sendSYN(from, to, rand.Uint32()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		l.Fatal(err)
	}
}

// sendSYN sends a bare SYN through a raw socket.
func sendSYN(from, to netip.AddrPort, seq uint32) error {
	header := &layers.TCP{SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()), Seq: seq, SYN: true,
		Window: 512}
	family, network := unix.AF_INET6, gopacket.NetworkLayer(&layers.IPv6{NextHeader: layers.IPProtocolTCP,
		SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()})
	var source, target unix.Sockaddr = &unix.SockaddrInet6{Addr: from.Addr().As16()},
		&unix.SockaddrInet6{Addr: to.Addr().As16()}
	if from.Addr().Is4() {
		family, network = unix.AF_INET, &layers.IPv4{Protocol: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(),
			DstIP: to.Addr().AsSlice()}
		source, target = &unix.SockaddrInet4{Addr: from.Addr().As4()}, &unix.SockaddrInet4{Addr: to.Addr().As4()}
	}
	if err := header.SetNetworkLayerForChecksum(network); err != nil {
		return err
	}
	segment := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(segment, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true},
		header); err != nil {
		return err
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, source); err != nil {
		return err
	}
	return unix.Sendto(fd, segment.Bytes(), 0, target)
}

// crashes checks that a client that has lost its connection, for example after a crash, can connect
// again from the same port while the real server still has the old connection.
func (l *lan) crashes(proto model.Proto, v4 bool) {
	if proto == model.UDP {
		return // UDP has no connections
	}
	l.eachForward(proto, v4, func(_ string, local netip.Addr) {
		old := l.hold(proto, v4, local, 1)[0]
		forgetConnection(l, old.conn.(*net.TCPConn))
		old.again(l.DoClient)
	})
}

// forgetConnection closes a connection without sending anything to the peer.
func forgetConnection(t testing.TB, conn *net.TCPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_REPAIR,
			1)
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	if err := closeAtOnce(conn); err != nil {
		t.Fatal(err)
	}
}
