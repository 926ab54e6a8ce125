package kernel

import (
	"maps"
	"net/netip"
	"path/filepath"
	"testing"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	cilium "github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// wiredWorld is a localWorld with a client behind a link, and with programs at both
// links.
type wiredWorld struct {
	*localWorld
	lan *netns.Namespace
}

func newWiredWorld(t *testing.T) wiredWorld {
	t.Helper()
	lan, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lan.Close() })
	mappings := toBox("0.0.0.0", 80, "10.9.0.2")
	for i := range mappings {
		mappings[i].Masquerade = netip.MustParseAddr("10.9.0.1")
	}
	w := wiredWorld{newLocalWorld(t, mappings...), lan}
	everywhere := netip.MustParsePrefix("0.0.0.0/0")
	for _, o := range (plan.Plan{
		plan.Sysctl{Name: "net.ipv4.ip_forward", Value: "1"},
		plan.Link{Name: "up0", Kind: plan.Veth, MTU: 1500, Owner: "up", IPv6: plan.IPv6Fixed, Peer: "eth0",
			PeerNetns: lan.Path(), PeerIPv6: plan.IPv6Fixed},
		plan.Address{Link: "up0", Prefix: netip.MustParsePrefix("192.0.2.1/24")},
		plan.Address{Netns: lan.Path(), Link: "eth0", Prefix: netip.MustParsePrefix("192.0.2.9/24")},
		plan.Route{Netns: lan.Path(), To: everywhere, Via: netip.MustParseAddr("192.0.2.1"), Link: "eth0"},
		plan.Route{Netns: w.box.Path(), To: everywhere, Via: netip.MustParseAddr("10.9.0.1"), Link: "eth0"},
		plan.Ingress{Link: "up0", Shared: true}, boxIngress,
	}) {
		if err := w.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.ebpf.RenewHost(); err != nil {
		t.Fatal(err)
	}
	return w
}

// reach connects from a namespace and checks which server answers. It returns the
// open connection.
func reach(t *testing.T, ns *netns.Namespace, at, want string) client {
	t.Helper()
	c := dialer(t, ns, unix.SOCK_STREAM, at)
	err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: patience})
	if err == nil {
		err = c.connect(at)
	}
	if err != nil {
		t.Fatalf("connect to %s: %v", at, err)
	}
	if said, _ := c.answer(t); said != want {
		t.Errorf("%s answers as %q, want %s", at, said, want)
	}
	return c
}

// ask asks again over an open connection which server answers.
func (c client) ask(t *testing.T, want string) {
	t.Helper()
	if _, err := unix.Write(c.fd, []byte("?")); err != nil {
		t.Fatalf("ask again: %v", err)
	}
	if said, _ := c.answer(t); said != want {
		t.Errorf("the connection is answered by %q, want %s", said, want)
	}
}

// TestFirstServiceKeepsPublishes keeps connections to a published port open while
// the first service is added, which replaces every program. The clients are one
// behind the uplink, one on the host, and the endpoint itself, whose connection
// only its flow entry can translate. Afterwards all clients reach the publish and
// the service.
func TestFirstServiceKeepsPublishes(t *testing.T) {
	w := newWiredWorld(t)
	froms := map[string]*netns.Namespace{"a client": w.lan, "the host": w.ns, "the endpoint": w.box}
	open := map[string]client{}
	for who, ns := range froms {
		open[who] = reach(t, ns, "192.0.2.1:80", "10.9.0.2:8080")
	}
	before := seenFlows(t, w.Host)
	web := ebpfWeb(model.RoundRobin)
	for _, op := range []plan.Op{{Object: web}, {Object: web, Del: true}, {Object: web}} {
		if err := w.ebpf.ApplyEBPF([]plan.Op{op}); err != nil {
			t.Fatal(err)
		}
		for who, ns := range froms {
			open[who].ask(t, "10.9.0.2:8080")
			reach(t, ns, "192.0.2.1:81", "10.9.0.2:8081")
			if !op.Del {
				reach(t, ns, "203.0.113.80:80", "10.9.0.2:8080")
			}
		}
	}
	for f := range before {
		if !seenFlows(t, w.Host)[f] {
			t.Errorf("the flow of %v is no longer in the table", f)
		}
	}
}

// seenFlows returns the client addresses of all flows, as the endpoint sees them.
func seenFlows(t *testing.T, h *Host) map[netip.AddrPort]bool {
	t.Helper()
	seen := map[netip.AddrPort]bool{}
	if err := h.ebpf.Flows(func(f ebpf.Flow) { seen[f.Seen] = true }); err != nil {
		t.Fatal(err)
	}
	if len(seen) == 0 {
		t.Fatal("the flow table is empty")
	}
	return seen
}

// TestServiceMapsGrowOnDemand checks that the maps are small until the first
// service is added, and again in the next process if no service is left. If
// services are left, the next process keeps the maps.
func TestServiceMapsGrowOnDemand(t *testing.T) {
	w := newLocalWorld(t)
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	pins := filepath.Join(bpffs(t), "fairlead")
	var h *Host
	reopen := func() {
		if h != nil {
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if h, err = Open(w.ns.Path(), Options{Pins: pins}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		if err := h.Set(plan.LocalClients{}); err != nil {
			t.Fatal(err)
		}
	}
	reopen()
	(&localWorld{Host: h, box: w.box}).mapping(t, false, toBox("0.0.0.0", 80, "10.9.0.2")...)
	without := memory(t, pins)
	web := ebpfWeb(model.RoundRobin)
	for _, op := range []plan.Op{{Object: web}, {Object: web, Del: true}} {
		if err := h.ebpf.ApplyEBPF([]plan.Op{op}); err != nil {
			t.Fatal(err)
		}
		if with := memory(t, pins); with < without+without/2 {
			t.Errorf("maps with room for services take %d MB, those without %d", with>>20, without>>20)
		}
		reopen()
		if now := memory(t, pins); now > without == op.Del {
			t.Errorf("the next process's maps take %d MB, those without services %d", now>>20, without>>20)
		}
		reach(t, w.ns, "10.9.0.1:80", "10.9.0.2:8080")
	}
	if err := h.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
}

// memory returns the memory of the pinned maps in bytes, as the kernel reports it.
func memory(t *testing.T, pins string) (sum uint64) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(pins, "*", "maps", "*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("found pins %v, %v", paths, err)
	}
	for _, path := range paths {
		m, err := cilium.LoadPinnedMap(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		bytes, _ := info.Memlock()
		sum += bytes
		m.Close()
	}
	return sum
}

// tunnel adds a link whose packets have no link header, with the address 192.0.2.1.
func (w *localWorld) tunnel(t *testing.T) *netlink.Tuntap {
	t.Helper()
	tun := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tun0"}, Mode: netlink.TUNTAP_MODE_TUN,
		Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_ONE_QUEUE, NonPersist: true, Queues: 1}
	if err := w.ns.Do(func() error { return netlink.LinkAdd(tun) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tun.Fds[0].Close() })
	w.run(t, "ip", "address", "add", "192.0.2.1/24", "dev", "tun0")
	w.run(t, "ip", "link", "set", "tun0", "up")
	return tun
}

// TestLinkWithoutHeaders sends datagrams through a tun link, whose packets have no
// link header: to a published port, after the first service was added, and after
// another process has taken over.
func TestLinkWithoutHeaders(t *testing.T) {
	w := newLocalWorld(t)
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	tun := w.tunnel(t)
	w.run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	if err := w.Set(plan.Route{Netns: w.box.Path(), To: netip.MustParsePrefix("0.0.0.0/0"),
		Via: netip.MustParseAddr("10.9.0.1"), Link: "eth0"}); err != nil {
		t.Fatal(err)
	}
	_, open := w.pinned(t)
	h := open()
	(&localWorld{Host: h, box: w.box}).mapping(t, false, toBox("0.0.0.0", 80, "10.9.0.2")...)
	for _, o := range []plan.Object{plan.Uplinks{}, boxIngress} {
		if err := h.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	through(t, tun, "192.0.2.1:80", "10.9.0.2:8080")
	dns := ebpfWeb(model.RoundRobin)
	dns.Proto = model.UDP
	if err := h.ebpf.ApplyEBPF([]plan.Op{{Object: dns}}); err != nil {
		t.Fatal(err)
	}
	through(t, tun, "192.0.2.1:80", "10.9.0.2:8080")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = open()
	hasService(t, h, dns, true)
	through(t, tun, "192.0.2.1:80", "10.9.0.2:8080")
	for _, o := range []plan.Object{plan.Uplinks{}, boxIngress} {
		if err := h.Del(o); err != nil {
			t.Fatal(err)
		}
	}
}

// through sends a datagram into a tunnel and checks the answer.
func through(t *testing.T, tun *netlink.Tuntap, to, want string) {
	t.Helper()
	at := netip.MustParseAddrPort(to)
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: []byte{192, 0, 2, 9},
		DstIP: at.Addr().AsSlice()}
	udp := &layers.UDP{SrcPort: 4000, DstPort: layers.UDPPort(at.Port())}
	_ = udp.SetNetworkLayerForChecksum(ip) // fails for other layers only
	call := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(call, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip,
		udp, gopacket.Payload("?")); err != nil {
		t.Fatal(err)
	}
	fd := int(tun.Fds[0].Fd())
	if _, err := unix.Write(fd, call.Bytes()); err != nil {
		t.Fatal(err)
	}
	var b [256]byte
	for {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, patience*1000); err != nil &&
			err != unix.EINTR || n == 0 {
			t.Fatalf("no answer from %s: %v", to, err)
		}
		n, err := unix.Read(fd, b[:])
		if err != nil {
			t.Fatal(err)
		}
		said := gopacket.NewPacket(b[:n], layers.LayerTypeIPv4, gopacket.Default)
		answer, ok := said.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if !ok || answer.DstPort != 4000 {
			continue // IPv6 messages of the host itself
		}
		if got := string(answer.Payload); got != want || uint16(answer.SrcPort) != at.Port() {
			t.Errorf("port %d answers %q, want %q", answer.SrcPort, got, want)
		}
		return
	}
}

// TestPreparedServiceReplacesNoProgram calls Prepare before the programs are
// attached: adding the service then replaces none of them.
func TestPreparedServiceReplacesNoProgram(t *testing.T) {
	w := newLocalWorld(t)
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	steps := []plan.Op{{Object: ebpfWeb(model.RoundRobin)}}
	for _, prepared := range []bool{true, false} {
		if prepared {
			if err := w.ebpf.Prepare(steps); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Set(plan.LocalClients{}); err != nil {
			t.Fatal(err)
		}
		before := attachedPrograms(t, w.Host)
		if err := w.ebpf.ApplyEBPF(steps); err != nil {
			t.Fatal(err)
		}
		if kept := maps.Equal(before, attachedPrograms(t, w.Host)); kept != prepared {
			t.Errorf("prepared %v: the programs are the same: %v", prepared, kept)
		}
		reach(t, w.ns, "203.0.113.80:80", "10.9.0.2:8080")
		if err := w.ebpf.ApplyEBPF([]plan.Op{{Object: steps[0].Object, Del: true}}); err != nil {
			t.Fatal(err)
		}
		if err := w.Del(plan.LocalClients{}); err != nil {
			t.Fatal(err)
		}
	}
}

// attachedPrograms returns the ids of the attached programs, by name.
func attachedPrograms(t *testing.T, h *Host) map[string]uint32 {
	t.Helper()
	found := map[string]uint32{}
	err := h.ebpf.WithDatapath(func(s *ebpf.ReadOnly) error {
		all, err := s.Attachments()
		for _, a := range all {
			found[a.Program] = a.ID
		}
		return err
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("attached programs: %v, %v", found, err)
	}
	return found
}
