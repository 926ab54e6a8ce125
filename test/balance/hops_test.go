package balance_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/model"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// hops checks that the host counts as a router on the path to a server outside of Fairlead. A
// client whose packets expire at the host receives ICMP time exceeded. A packet whose hop limit is
// larger by one arrives.
func (l *lan) hops(proto model.Proto, v4 bool) {
	v := l.service(proto, v4, "far1", "far2")
	l.expiresAtHost(v, v4)
	if !slices.Contains(can[l.plane], "direct") {
		return
	}
	v.Forward = model.ForwardDirect
	for i, name := range []string{"far1", "far2"} {
		l.prepare(name, v4)
		v.Reals[i].Port = 0
	}
	l.expiresAtHost(v, v4)
}

// expiresAtHost fails the test unless a client on the LAN gets ICMP time exceeded from the host
// with hop limit 1, and an answer with hop limit 2. The host sends the error from the virtual
// address, except with IPVS over IPv6.
func (l *lan) expiresAtHost(v model.VirtualService, v4 bool) {
	l.Helper()
	l.set(v)
	senders := []netip.Addr{vip(v4)}
	if l.plane == model.PlaneIPVS && !v4 {
		senders = append(senders, netip.MustParseAddr("2001:db8:1::2"), netip.MustParseAddr("2001:db8:113::1"))
	}
	for hops, want := range map[int][]netip.Addr{1: senders, 2: {{}}} {
		var by netip.Addr
		if err := l.DoClient(func() (err error) {
			by, err = call(v.Proto, netip.AddrPortFrom(onLAN(v4), uint16(l.freshPort())),
				netip.AddrPortFrom(vip(v4), 8080), hops)
			return err
		}); err != nil || !slices.Contains(want, by) {
			l.Errorf("%s, hop limit %d: time exceeded comes from %s, want %s: %v", v.Forward, hops, by, want, err)
		}
	}
}

// call sends a line from a new port in packets with the given hop limit, repeatedly over UDP. It
// returns the sender of the ICMP time exceeded, or an invalid address if the line is answered.
func call(proto model.Proto, from, to netip.AddrPort, hops int) (by netip.Addr, err error) {
	s, err := open(proto, to.Addr().Is4(), hops)
	if err != nil {
		return by, err
	}
	defer unix.Close(s)
	if err := unix.Bind(s, sockaddr(from)); err != nil {
		return by, err
	}
	for deadline := time.Now().Add(place.Timeout); ; {
		err := say(s, to)
		if errors.Is(err, unix.EHOSTUNREACH) {
			return expiredAt(s)
		}
		if proto == model.TCP || !errors.Is(err, unix.EAGAIN) || time.Now().After(deadline) {
			return by, err
		}
	}
}

// open opens a socket whose packets have the given hop limit, and which queues received ICMP
// errors.
func open(proto model.Proto, v4 bool, hops int) (int, error) {
	kind, wait := unix.SOCK_STREAM, unix.NsecToTimeval(int64(place.Timeout))
	if proto == model.UDP {
		kind, wait = unix.SOCK_DGRAM, unix.NsecToTimeval(int64(place.Timeout/20))
	}
	family, level, limit, keep := unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_RECVERR
	if v4 {
		family, level, limit, keep = unix.AF_INET, unix.SOL_IP, unix.IP_TTL, unix.IP_RECVERR
	}
	s, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = errors.Join(unix.SetsockoptInt(s, level, limit, hops), unix.SetsockoptInt(s, level, keep, 1),
		unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait))
	if err != nil {
		return -1, errors.Join(err, unix.Close(s))
	}
	return s, nil
}

// say connects the socket, sends a line and waits for the answer.
func say(s int, to netip.AddrPort) error {
	if err := unix.Connect(s, sockaddr(to)); err != nil {
		return err
	}
	if _, err := unix.Write(s, []byte("hello\n")); err != nil {
		return err
	}
	_, err := unix.Read(s, make([]byte, 128))
	return err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// expiredAt returns the sender of the ICMP time exceeded that the socket has
// received: a struct sock_extended_err of linux/errqueue.h, and an address.
func expiredAt(s int) (by netip.Addr, err error) {
	oob := make([]byte, 256)
	_, n, _, _, err := unix.Recvmsg(s, make([]byte, 256), oob, unix.MSG_ERRQUEUE)
	if err != nil {
		return by, err
	}
	all, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(all) == 0 || len(all[0].Data) < 16+unix.SizeofSockaddrInet4 {
		return by, fmt.Errorf("no ICMP error in %v: %v", all, err)
	}
	kind, code, from := all[0].Data[5], all[0].Data[6], all[0].Data[16:]
	switch [2]byte{kind, code} {
	case [2]byte{11, 0}: // ICMP time exceeded
		by, _ = netip.AddrFromSlice(from[4:8])
	case [2]byte{3, 0}: // ICMPv6 time exceeded
		by, _ = netip.AddrFromSlice(from[8:24])
	default:
		err = fmt.Errorf("the error is of type %d, code %d", kind, code)
	}
	return by, err
}
