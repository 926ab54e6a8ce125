package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"fairlead/internal/kernel/bpf"
	"fairlead/test/cpu"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The addresses of the host's uplink and of its two sandboxes.
var (
	hostV4, hostV6   = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:1::1")
	otherV4, otherV6 = netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8:1::2")
	gateV4, gateV6   = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd00:9::1")
	webV4, webV6     = netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("fd00:9::2")
	appV4, appV6     = netip.MustParseAddr("10.9.0.3"), netip.MustParseAddr("fd00:9::3")
	hostMAC          = net.HardwareAddr{2, 0, 0, 0, 0, 1}
)

// bench is a network namespace in which tests run the programs without real
// traffic: with two uplinks and the host interfaces of the sandboxes web and app.
type bench struct {
	*Datapath
	work              chan func()
	up, up2, web, app int // interfaces
}

// testFlows is the maps' limit of flows: small, so that tests count flows quickly.
const testFlows = 1024

// newBench makes a bench with an empty table. Its programs and maps are those of an earlier bench that has ended, if
// there is one.
func newBench(tb testing.TB) *bench {
	tb.Helper()
	c := takeSpare(tb)
	tb.Cleanup(func() { giveSpare(tb, c) })
	return newBenchOf(tb, clone(tb, c))
}

// newBenchWith is newBench with only the programs that the function selects, after
// changes of their specification. It loads them for this bench.
func newBenchWith(tb testing.TB, wanted func(*ebpf.ProgramSpec) bool, changes ...func(*ebpf.CollectionSpec)) *bench {
	tb.Helper()
	return newBenchOf(tb, loadBench(tb, wanted, changes...))
}

// loadBench loads the programs of a bench.
func loadBench(
	tb testing.TB, wanted func(*ebpf.ProgramSpec) bool, changes ...func(*ebpf.CollectionSpec),
) *ebpf.Collection {
	tb.Helper()
	spec, err := Spec(0, ethernet, true)
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range []string{bpf.FairleadMapFlFlowsTcp, bpf.FairleadMapFlFlowsUdp, bpf.FairleadMapFlConnsTcp,
		bpf.FairleadMapFlConnsUdp, bpf.FairleadMapFlYoungFlows, bpf.FairleadMapFlYoungConns} {
		spec.Maps[name].MaxEntries = testFlows
	}
	for _, change := range changes {
		change(spec)
	}
	keep(spec, wanted)
	c, err := bpf.Load(spec, nil)
	if err != nil {
		tb.Fatal(explain(err))
	}
	return c
}

// newBenchOf makes a bench of loaded programs and empty maps, which end with it.
func newBenchOf(tb testing.TB, c *ebpf.Collection) *bench {
	tb.Helper()
	b := &bench{work: make(chan func())}
	go b.serve()
	tb.Cleanup(func() { close(b.work) })
	b.do(tb, func() error { return unix.Unshare(unix.CLONE_NEWNET) })
	b.do(tb, cpu.Stay)
	b.do(tb, b.links)
	b.Datapath = &Datapath{programs: c.Programs, maps: c.Maps, balancing: true}
	tb.Cleanup(func() { b.Datapath.Close() })
	var err error
	if b.table, err = openTable(b.maps); err != nil {
		tb.Fatal(err)
	}
	if b.balancer, err = openBalancer(b.maps); err != nil {
		tb.Fatal(err)
	}
	b.do(tb, func() error { return errors.Join(b.Sources().setUplink(b.up), b.Sources().setUplink(b.up2)) })
	err = errors.Join(b.Sources().SetEndpoint(b.web, []netip.Addr{webV4, webV6}),
		b.Sources().SetEndpoint(b.app, []netip.Addr{appV4, appV6}))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// serve runs functions on a thread that ends with it, so that no other goroutine runs in
// its namespace.
func (b *bench) serve() {
	runtime.LockOSThread()
	for fn := range b.work {
		fn()
	}
}

// do runs fn on the bench's thread.
func (b *bench) do(tb testing.TB, fn func() error) {
	tb.Helper()
	var wg sync.WaitGroup
	var err error
	wg.Add(1)
	b.work <- func() { defer wg.Done(); err = fn() }
	if wg.Wait(); err != nil {
		tb.Fatal(err)
	}
}

// links creates the interfaces. It enables forwarding, as on every host with
// sandboxes: bpf_fib_lookup finds no route while forwarding is off.
func (b *bench) links() error {
	var errs []error
	local := map[string]bool{}
	for _, l := range []struct {
		name  string
		index *int
		addrs []string
	}{
		{"lo", new(int), nil},
		{"up", &b.up, []string{"192.0.2.1/24", "192.0.2.2/24", "2001:db8:1::1/64", "2001:db8:1::2/64"}},
		{"up2", &b.up2, []string{"198.18.0.1/24", "2001:db8:5::1/64"}},
		{"web", &b.web, []string{"10.9.0.1/24", "fd00:9::1/64"}},
		{"app", &b.app, nil},
	} {
		err := addLink(l.name, l.addrs)
		dev, found := netlink.LinkByName(l.name)
		if errs = append(errs, err, found); found == nil {
			*l.index = dev.Attrs().Index
		}
		for _, a := range l.addrs {
			local[netip.MustParsePrefix(a).Addr().String()] = true
		}
	}
	errs = append(errs, awaitLocal(local))
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		errs = append(errs, os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0o644))
	}
	return errors.Join(errs...)
}

// awaitLocal waits until the host has the addresses. The kernel adds the local routes of IPv6 addresses later than the
// addresses, also if it does not look for duplicates.
func awaitLocal(missing map[string]bool) error {
	routes, done := make(chan netlink.RouteUpdate), make(chan struct{})
	err := netlink.RouteSubscribeWithOptions(routes, done, netlink.RouteSubscribeOptions{ListExisting: true})
	if err != nil {
		return err
	}
	defer func() {
		close(done)
		for range routes { // until the subscription has ended
		}
	}()
	for len(missing) > 0 {
		r, open := <-routes
		if !open {
			return fmt.Errorf("the host has no local routes to %v", slices.Sorted(maps.Keys(missing)))
		}
		if r.Route.Type == unix.RTN_LOCAL && r.Dst != nil {
			delete(missing, r.Dst.IP.String())
		}
	}
	return nil
}

// routers gives the host default routes via its first uplink.
func (b *bench) routers(tb testing.TB) {
	tb.Helper()
	for _, router := range []string{"192.0.2.254", "2001:db8:1::fe"} {
		b.do(tb, func() error { return netlink.RouteAdd(&netlink.Route{LinkIndex: b.up, Gw: net.ParseIP(router)}) })
	}
}

// behind returns the link of the sandbox that has the address.
func (b *bench) behind(a netip.Addr) int {
	if a == appV4 || a == appV6 {
		return b.app
	}
	return b.web
}

// addLink makes a veth pair, unless the link is lo, and brings it up.
func addLink(name string, addrs []string) error {
	dev := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: hostMAC}, PeerName: name + "-peer"}
	if name != "lo" {
		if err := netlink.LinkAdd(dev); err != nil {
			return err
		}
	}
	for _, s := range addrs {
		a, err := netlink.ParseAddr(s)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(dev, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(dev)
}

// skb is the kernel's struct __sk_buff, of which a test may set a few fields.
type skb struct {
	_                [9]uint32
	Ingress, Ifindex uint32
	_                [25]uint32
	_                [2]uint64
	WireLen, GSOSegs uint32
	_                uint64
	GSOSize          uint32
	_                uint32
	_                uint64
}

// checksumComplete makes the kernel add up the packet's bytes as a network card does,
// and verify the sum after the program (BPF_F_TEST_SKB_CHECKSUM_COMPLETE).
const checksumComplete = 1 << 2

// The return values of the programs.
const (
	untouched = -1
	drop      = 2
	redirect  = 7
)

// try runs the program on a frame received by the interface, and returns the
// program's return value and the frame after it.
func (b *bench) try(tb testing.TB, program string, frame []byte, ctx skb, flags uint32) (int, []byte, error) {
	tb.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: ctx, Flags: flags}
	var act uint32
	var failed error
	b.do(tb, func() error {
		act, failed = b.programs[program].Run(&o)
		return nil
	})
	return int(int32(act)), o.DataOut, failed
}

// run is try, but fails the test if the kernel cannot run the program.
func (b *bench) run(tb testing.TB, program string, frame []byte, ctx skb, flags uint32) (int, []byte) {
	tb.Helper()
	act, out, err := b.try(tb, program, frame, ctx, flags)
	if err != nil {
		tb.Fatalf("run %s on\n%x: %v", program, frame, err)
	}
	return act, out
}

// uplink runs the program uplink on a frame that the first uplink receives.
func (b *bench) uplink(tb testing.TB, frame []byte) (int, []byte) {
	tb.Helper()
	return b.run(tb, Uplink, frame, skb{Ifindex: uint32(b.up)}, 0)
}

// publish adds mappings to the table.
func (b *bench) publish(tb testing.TB, mappings ...Mapping) {
	tb.Helper()
	var changes []Change
	for _, l := range mappings {
		changes = append(changes, Change{New: &l})
	}
	if err := b.table.Apply(changes); err != nil {
		tb.Fatal(err)
	}
}

// mapping returns a mapping of the host ports first to last to the ports of the
// sandbox web that begin at to.
func (b *bench) mapping(udp bool, host netip.Addr, first, last, to uint16, flags uint8) Mapping {
	l := Mapping{Host: Address(host), To: Address(webV4), Masquerade: Address(gateV4), Ifindex: uint32(b.web),
		First: first, Last: last, ToFirst: to, Flags: flags, Class: ClassOf(host.Is4(), udp)}
	if host.Is6() {
		l.To, l.Masquerade = Address(webV6), Address(gateV6)
	}
	if host.IsUnspecified() {
		l.Flags |= MappingAny
	}
	return l
}

// flows returns the flows in the maps.
func (b *bench) flows(tb testing.TB) []Flow {
	tb.Helper()
	var all []Flow
	if err := b.Flows().Each(func(f Flow) { all = append(all, f) }); err != nil {
		tb.Fatal(err)
	}
	return all
}

// forget deletes all flows.
func (b *bench) forget(tb testing.TB) {
	tb.Helper()
	if err := b.Flows().Forget(b.flows(tb)); err != nil {
		tb.Fatal(err)
	}
}

// alter changes a flow in its map.
func (b *bench) alter(tb testing.TB, f Flow, change func(*bpf.FairleadFlow)) {
	tb.Helper()
	m := b.maps[bpf.FairleadMapFlFlowsTcp]
	if f.UDP {
		m = b.maps[bpf.FairleadMapFlFlowsUdp]
	}
	var v bpf.FairleadFlow
	err := m.Lookup(f.key, &v)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		m = b.maps[bpf.FairleadMapFlYoungFlows]
		err = m.Lookup(f.key, &v)
	}
	if err != nil {
		tb.Fatal(err)
	}
	change(&v)
	if err := m.Put(f.key, v); err != nil {
		tb.Fatal(err)
	}
}

// be reads a number in network byte order.
func be(b []byte) uint16 { return binary.BigEndian.Uint16(b) }
