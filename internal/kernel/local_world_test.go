package kernel

import (
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"testing"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// patience is how many seconds a test waits for an expected answer.
const patience = 10

// localWorld is a host and a sandbox that are connected by a veth. Servers in the
// sandbox answer every client with the server's address.
//
//	host 10.9.0.1, fd09::1 ══ 10.9.0.2, fd09::2 sandbox
type localWorld struct {
	*Host
	box    *netns.Namespace
	shared bool // by several tests
}

func newLocalWorld(t *testing.T, mappings ...plan.EBPFMapping) *localWorld {
	t.Helper()
	box, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Close() })
	w := &localWorld{Host: openTestHost(t), box: box}
	for _, o := range (plan.Plan{
		plan.Link{Name: "box0", Kind: plan.Veth, MTU: 1500, Owner: "box", IPv6: plan.IPv6Fixed, Peer: "eth0",
			PeerNetns: box.Path(), PeerIPv6: plan.IPv6Fixed},
		plan.Address{Link: "box0", Prefix: netip.MustParsePrefix("10.9.0.1/24")},
		plan.Address{Link: "box0", Prefix: netip.MustParsePrefix("fd09::1/64")},
		plan.Address{Netns: box.Path(), Link: "eth0", Prefix: netip.MustParsePrefix("10.9.0.2/24")},
		plan.Address{Netns: box.Path(), Link: "eth0", Prefix: netip.MustParsePrefix("fd09::2/64")},
	}) {
		if err := w.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{"10.9.0.2:8080", "10.9.0.2:8081", "[fd09::2]:8080", "[fd09::2]:8081"} {
		serve(t, box, at)
	}
	w.mapping(t, false, mappings...)
	if err := w.Set(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	return w
}

// sharing is a test that shares its world with others.
type sharing struct {
	name string
	run  func(t *testing.T, w *localWorld)
}

// share runs the tests in the world, because the verification of a world's programs takes most of the time of a test.
func (w *localWorld) share(t *testing.T, tests []sharing) {
	t.Helper()
	w.shared = true
	for _, s := range tests {
		t.Run(s.name, func(t *testing.T) { s.run(t, w) })
	}
}

// pinned returns a function that opens the host like a new process, with the pins
// that the previous one has left.
func (w *localWorld) pinned(t *testing.T) (pins string, open func() *Host) {
	t.Helper()
	pins = filepath.Join(bpffs(t), "fairlead")
	return pins, func() *Host {
		t.Helper()
		h, err := Open(w.ns.Path(), Options{Pins: pins})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		return h
	}
}

// mapping adds or removes port mappings.
func (w *localWorld) mapping(t *testing.T, del bool, mappings ...plan.EBPFMapping) {
	t.Helper()
	var ops []plan.Op
	for _, l := range mappings {
		ops = append(ops, plan.Op{Object: l, Del: del})
	}
	if err := w.ebpf.ApplyEBPF(ops); err != nil {
		t.Fatal(err)
	}
}

// boxIngress is the program for packets from the sandbox.
var boxIngress = plan.SandboxIngress("box0",
	[]netip.Addr{netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("fd09::2")})

// toBox returns TCP and UDP port mappings from a host address and port to port 8080
// of the sandbox, and from the next port to 8081.
func toBox(host string, port uint16, to string) []plan.EBPFMapping {
	var mappings []plan.EBPFMapping
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		mappings = append(mappings, plan.EBPFMapping{Proto: proto, Link: "box0",
			Host: netip.MustParseAddr(host), Ports: model.PortRange{First: port, Last: port + 1},
			To: netip.MustParseAddr(to), ToPorts: model.PortRange{First: 8080, Last: 8081}})
	}
	return mappings
}

// serve answers TCP and UDP at an address of a namespace with that address: it
// answers every connection, byte and datagram.
func serve(t *testing.T, ns *netns.Namespace, at string) {
	t.Helper()
	var stream net.Listener
	var datagrams net.PacketConn
	err := ns.Do(func() (err error) {
		if stream, err = net.Listen("tcp", at); err != nil {
			return err
		}
		datagrams, err = net.ListenPacket("udp", at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close(); datagrams.Close() })
	go func() {
		for {
			c, err := stream.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var b [1]byte
				for err == nil {
					if _, err = c.Write([]byte(at)); err == nil {
						_, err = c.Read(b[:])
					}
				}
			}()
		}
	}()
	go func() {
		var b [1]byte
		for {
			_, from, err := datagrams.ReadFrom(b[:])
			if err != nil {
				return
			}
			_, _ = datagrams.WriteTo([]byte(at), from)
		}
	}()
}

// client is a socket whose methods are single system calls.
type client struct {
	fd     int
	family int
}

// dialer opens a socket of at's address family in a namespace.
func dialer(t *testing.T, ns *netns.Namespace, kind int, at string) client {
	t.Helper()
	c := client{family: unix.AF_INET}
	if netip.MustParseAddrPort(at).Addr().Is6() {
		c.family = unix.AF_INET6
	}
	err := ns.Do(func() (err error) {
		c.fd, err = unix.Socket(c.family, kind|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(c.fd) })
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Sec: patience}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c client) connect(at string) error { return unix.Connect(c.fd, c.sockaddr(at)) }

func (c client) bind(at string) error { return unix.Bind(c.fd, c.sockaddr(at)) }

func (c client) sendTo(at string) error { return unix.Sendto(c.fd, []byte("?"), 0, c.sockaddr(at)) }

func (c client) sockaddr(at string) unix.Sockaddr {
	a := netip.MustParseAddrPort(at)
	if c.family == unix.AF_INET {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	zone, _ := strconv.ParseUint(a.Addr().Zone(), 10, 32) // the index of a link; 0 if there is none
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port()), ZoneId: uint32(zone)}
}

// peer returns the socket's peer address.
func (c client) peer(t *testing.T) string {
	t.Helper()
	from, err := unix.Getpeername(c.fd)
	if err != nil {
		t.Fatal(err)
	}
	return text(from)
}

// answer returns the answer of a server and, for datagrams, its source address.
func (c client) answer(t *testing.T) (said, from string) {
	t.Helper()
	var b [64]byte
	n, sender, err := unix.Recvfrom(c.fd, b[:], 0)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	return string(b[:n]), text(sender)
}

func text(a unix.Sockaddr) string {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)).String()
	}
	return ""
}
