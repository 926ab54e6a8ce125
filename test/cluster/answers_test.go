package cluster_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"fairlead/internal/kernel/netns"

	"golang.org/x/sys/unix"
)

// The log of a virtual address proves who has answered for it, and when. All hosts have the same
// clock, so the times can be compared.
//
//   - Each host has a packet socket that sees what leaves the host, after the fence. It logs each ARP
//     packet, neighbour advertisement and IP packet in the name of an address, with the kernel's time.
//   - Each host has a UDP socket. It logs each datagram to an address that the host has accepted. The
//     kernel takes its time before the fence, so the log has also the time after the socket was read.
//   - A prober sends a question (ARP or ND) and a datagram for each address to each host, whether the
//     host has the address or not, every probeEvery.
//
// A host that answers two questions less than silence apart has answered all the time between them. No
// other host may answer or accept a packet in that time.
const (
	probeEvery = 3 * time.Millisecond
	silence    = 50 * time.Millisecond
	probePort  = 9
)

// answer is a packet that a host has sent in the name of an address, or accepted for it, between two
// times. They are equal for a packet that it has sent.
type answer struct {
	host        int
	from, until int64
}

// answers is the log of one address.
type answers struct {
	mu  sync.Mutex
	all []answer
}

func (l *answers) add(a answer) {
	l.mu.Lock()
	l.all = append(l.all, a)
	l.mu.Unlock()
}

// last returns the host that has answered last, and whether that is not longer ago than silence.
func (l *answers) last() (host int, recent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return 0, false
	}
	a := l.all[len(l.all)-1]
	return a.host, time.Now().UnixNano()-a.until < int64(silence)
}

// judge returns how often another host answered than before, and each time at which two hosts have
// answered at the same time.
func judge(all []answer) (moves int, overlaps []string) {
	sent := slices.DeleteFunc(slices.Clone(all), func(a answer) bool { return a.from != a.until })
	slices.SortFunc(sent, func(a, b answer) int { return int(a.from - b.from) })
	times := map[int][]int64{}
	for i, a := range sent {
		times[a.host] = append(times[a.host], a.from)
		if i > 0 && sent[i-1].host != a.host {
			moves++
		}
	}
	for _, a := range all {
		for host, at := range times {
			// The last packet of the other host that is surely before, and the first that is surely after.
			next, _ := slices.BinarySearch(at, a.until+1)
			before, _ := slices.BinarySearch(at, a.from)
			if host != a.host && before > 0 && next < len(at) && next == before &&
				at[next]-at[before-1] < int64(silence) {
				overlaps = append(overlaps, fmt.Sprintf("host%d at %s, between answers of host%d %s apart", a.host+1,
					time.Unix(0, a.from).Format("15:04:05.000000"), host+1, time.Duration(at[next]-at[before-1])))
			}
		}
	}
	return moves, overlaps
}

// watcher logs what the hosts of a LAN answer for virtual addresses.
type watcher struct {
	*testing.T
	logs map[netip.Addr]*answers
	stop chan struct{}
	done sync.WaitGroup
	// slowest is the longest time between two rounds of questions.
	slowest time.Duration
}

// watch starts the log for the addresses, until the test ends or close is called.
func watch(l *lan, client *netns.Namespace, addresses ...netip.Addr) *watcher {
	l.Helper()
	w := &watcher{T: l.T, logs: map[netip.Addr]*answers{}, stop: make(chan struct{})}
	for _, a := range addresses {
		w.logs[a] = &answers{}
	}
	var macs []net.HardwareAddr
	for i, h := range l.hosts {
		macs = append(macs, macOf(l.T, h.ns))
		w.receive(h.ns, unix.AF_PACKET, func(p []byte, from unix.Sockaddr, at int64, _ netip.Addr) {
			if to, ok := from.(*unix.SockaddrLinklayer); ok && to.Pkttype == unix.PACKET_OUTGOING {
				if log := w.logs[claimed(p)]; log != nil {
					log.add(answer{i, at, at})
				}
			}
		})
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			w.receive(h.ns, family, func(_ []byte, _ unix.Sockaddr, at int64, to netip.Addr) {
				if log := w.logs[to]; log != nil {
					log.add(answer{i, at, time.Now().UnixNano()})
				}
			})
		}
	}
	w.probe(client, macs)
	l.Cleanup(w.close)
	return w
}

func (w *watcher) close() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.done.Wait()
}

func macOf(t *testing.T, ns *netns.Namespace) (mac net.HardwareAddr) {
	t.Helper()
	err := ns.Do(func() error {
		link, err := net.InterfaceByName("eth0")
		if err == nil {
			mac = link.HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// receive reads a socket of a host until the watcher is closed. take gets each packet, who has sent it,
// the kernel's time, and the address to which it was sent.
func (w *watcher) receive(ns *netns.Namespace, family int, take func([]byte, unix.Sockaddr, int64, netip.Addr)) {
	w.Helper()
	var s int
	if err := ns.Do(func() (err error) { s, err = open(family); return err }); err != nil {
		w.Fatalf("open a socket: %v", err)
	}
	w.done.Go(func() {
		defer unix.Close(s)
		defer w.complete(s, family)
		packet, control := make([]byte, 2048), make([]byte, 256)
		for {
			select {
			case <-w.stop:
				return
			default:
			}
			n, c, _, from, err := unix.Recvmsg(s, packet, control, 0)
			if err == nil {
				at, to := details(control[:c])
				take(packet[:n], from, at, to)
			} else if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
				w.Errorf("read a socket: %v", err)
				return
			}
		}
	})
}

// complete fails the test if the kernel could not give all packets to the log.
func (w *watcher) complete(s, family int) {
	if family != unix.AF_PACKET {
		return
	}
	stats, err := unix.GetsockoptTpacketStats(s, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil || stats.Drops > 0 {
		w.Errorf("the log is incomplete: %v, %v", stats, err)
	}
}

// open opens a packet socket, or a UDP socket for the probes.
func open(family int) (s int, err error) {
	const buffer = 16 << 20
	if family == unix.AF_PACKET {
		all := int(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL)))
		s, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	} else if s, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
		if family == unix.AF_INET {
			err = errors.Join(unix.SetsockoptInt(s, unix.IPPROTO_IP, unix.IP_PKTINFO, 1),
				unix.Bind(s, &unix.SockaddrInet4{Port: probePort}))
		} else {
			err = errors.Join(unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1),
				unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1),
				unix.Bind(s, &unix.SockaddrInet6{Port: probePort}))
		}
	}
	if err != nil {
		return s, err
	}
	wait := unix.NsecToTimeval(int64(silence))
	return s, errors.Join(unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer),
		unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait))
}

// details returns the kernel's time of a packet, and the address to which it was sent.
func details(control []byte) (at int64, to netip.Addr) {
	messages, _ := unix.ParseSocketControlMessage(control) // what cannot be read has no time
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && len(m.Data) >= 16: // a struct timespec
			at = int64(binary.NativeEndian.Uint64(m.Data))*int64(time.Second) +
				int64(binary.NativeEndian.Uint64(m.Data[8:]))
		case m.Header.Level == unix.IPPROTO_IP && len(m.Data) >= 12: // a struct in_pktinfo
			to = netip.AddrFrom4([4]byte(m.Data[8:]))
		case m.Header.Level == unix.IPPROTO_IPV6 && len(m.Data) >= 16: // a struct in6_pktinfo
			to = netip.AddrFrom16([16]byte(m.Data))
		}
	}
	return at, to
}

// The offsets in Ethernet frames (RFC 826, RFC 791, RFC 8200, RFC 4861).
const (
	frameType    = 12
	frameBody    = 14
	arpSender    = frameBody + 14
	ipv4Source   = frameBody + 12
	ipv6Next     = frameBody + 6
	ipv6Source   = frameBody + 8
	icmpv6Type   = frameBody + 40
	icmpv6Target = icmpv6Type + 8

	solicitation  = 135
	advertisement = 136
)

// claimed returns the address in whose name a host has sent a frame.
func claimed(p []byte) netip.Addr {
	if len(p) < ipv4Source+8 {
		return netip.Addr{}
	}
	switch binary.BigEndian.Uint16(p[frameType:]) {
	case unix.ETH_P_ARP:
		return netip.AddrFrom4([4]byte(p[arpSender:]))
	case unix.ETH_P_IP:
		return netip.AddrFrom4([4]byte(p[ipv4Source:]))
	case unix.ETH_P_IPV6:
		if len(p) >= icmpv6Target+16 && p[ipv6Next] == unix.IPPROTO_ICMPV6 && p[icmpv6Type] == advertisement {
			return netip.AddrFrom16([16]byte(p[icmpv6Target:]))
		}
		if len(p) >= ipv6Source+16 {
			return netip.AddrFrom16([16]byte(p[ipv6Source:]))
		}
	}
	return netip.Addr{}
}

// probe asks each host for each address until the watcher is closed.
func (w *watcher) probe(client *netns.Namespace, macs []net.HardwareAddr) {
	w.Helper()
	own := macOf(w.T, client)
	var s, index int
	err := client.Do(func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		index = link.Index
		s, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		w.Fatalf("open a socket: %v", err)
	}
	var frames [][]byte
	for _, mac := range macs {
		for a := range w.logs {
			frames = append(frames, questionFor(own, mac, a), datagramTo(own, mac, a))
		}
	}
	to := unix.SockaddrLinklayer{Ifindex: index, Halen: 6}
	w.done.Go(func() {
		defer unix.Close(s)
		every := time.NewTicker(probeEvery)
		defer every.Stop()
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-w.stop:
				return
			case <-every.C:
			}
			w.slowest = max(w.slowest, time.Since(last))
			for _, f := range frames {
				if err := unix.Sendto(s, f, 0, &to); err != nil && !errors.Is(err, unix.ENOBUFS) {
					w.Errorf("ask for an address: %v", err)
					return
				}
			}
		}
	})
}

// The prober's addresses.
var (
	prober4 = netip.MustParseAddr("192.0.2.77")
	prober6 = netip.MustParseAddr("2001:db8::77")
)

// questionFor returns a frame that asks a host for the hardware address of an address.
func questionFor(own, host net.HardwareAddr, a netip.Addr) []byte {
	if a.Is4() {
		p := append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, own...)
		p = append(append(p, prober4.AsSlice()...), make([]byte, 6)...)
		return frame(own, host, unix.ETH_P_ARP, append(p, a.AsSlice()...))
	}
	p := append([]byte{solicitation, 0, 0, 0, 0, 0, 0, 0}, a.AsSlice()...)
	p = append(append(p, 1, 1), own...) // the option with the sender's hardware address
	return frame(own, host, unix.ETH_P_IPV6, ipv6(unix.IPPROTO_ICMPV6, 2, a, p))
}

// datagramTo returns a frame with a UDP datagram to an address.
func datagramTo(own, host net.HardwareAddr, a netip.Addr) []byte {
	udp := []byte{0x80, 0, 0, probePort, 0, 8, 0, 0}
	if a.Is6() {
		return frame(own, host, unix.ETH_P_IPV6, ipv6(unix.IPPROTO_UDP, 6, a, udp))
	}
	p := append([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, prober4.AsSlice()...)
	p = append(p, a.AsSlice()...)
	binary.BigEndian.PutUint16(p[10:], checksum(p))
	return frame(own, host, unix.ETH_P_IP, append(p, udp...))
}

func frame(own, host net.HardwareAddr, kind uint16, body []byte) []byte {
	f := binary.BigEndian.AppendUint16(append(slices.Clone(host), own...), kind)
	return append(f, body...)
}

// ipv6 returns a packet with a body whose checksum is at an offset.
func ipv6(next, sum byte, to netip.Addr, body []byte) []byte {
	pseudo := append(prober6.AsSlice(), to.AsSlice()...)
	pseudo = append(pseudo, 0, 0, 0, byte(len(body)), 0, 0, 0, next)
	binary.BigEndian.PutUint16(body[sum:], checksum(append(pseudo, body...)))
	p := append([]byte{0x60, 0, 0, 0, 0, byte(len(body)), next, 255}, prober6.AsSlice()...)
	return append(append(p, to.AsSlice()...), body...)
}

// checksum returns that of the Internet protocols (RFC 1071).
func checksum(p []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(p); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// TestJudge checks what counts as an overlap.
func TestJudge(t *testing.T) {
	ms := func(from, until float64) (int64, int64) { return int64(from * 1e6), int64(until * 1e6) }
	at := func(host int, times ...float64) (all []answer) {
		for _, x := range times {
			from, until := ms(x, x)
			all = append(all, answer{host, from, until})
		}
		return all
	}
	accepted := func(host int, x, y float64) []answer {
		from, until := ms(x, y)
		return []answer{{host, from, until}}
	}
	for name, c := range map[string]struct {
		log   [][]answer
		moves int
		over  bool
	}{
		"one after the other":            {[][]answer{at(0, 0, 3, 6), at(1, 9, 12)}, 1, false},
		"there and back":                 {[][]answer{at(0, 0, 3, 90, 93), at(1, 9, 12)}, 2, false},
		"one answer at the same time":    {[][]answer{at(0, 0, 3, 6), at(1, 4)}, 2, true},
		"accepted at the same time":      {[][]answer{at(0, 0, 3, 6), accepted(1, 4, 5)}, 0, true},
		"accepted before or after":       {[][]answer{at(0, 0, 3, 6), accepted(1, 5, 7)}, 0, false},
		"accepted while no host answers": {[][]answer{at(0, 0, 3, 90), accepted(1, 4, 5)}, 0, false},
	} {
		moves, overlaps := judge(slices.Concat(c.log...))
		if moves != c.moves || len(overlaps) > 0 != c.over {
			t.Errorf("%s: %d moves, overlaps %v", name, moves, overlaps)
		}
	}
}
