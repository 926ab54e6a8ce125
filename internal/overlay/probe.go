package overlay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Each size is tried several times, because single datagrams may be lost without a
// fault. wait is how long to wait for the answers of each try.
const (
	tries = 3
	wait  = 400 * time.Millisecond
)

// prober sends datagrams to one host.
type prober struct {
	conn    *net.UDPConn
	headers int
	number  uint64
	// peerMTU is the network's MTU on the other host, 0 until it is known.
	peerMTU int
	// corrupted counts the messages that arrived with other data than was sent, in
	// both directions.
	corrupted int
}

// newProber opens a socket that sends with the DF bit, and ignores the path MTU
// that the kernel knows.
func (t Target) newProber() (*prober, error) {
	p := &prober{headers: 20 + 8}
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	if t.Peer.Is6() {
		p.headers = 40 + 8
		level, option, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	from, to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.Local, 0)),
		net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.Peer, Port))
	if err := t.enter(func() (err error) { p.conn, err = net.DialUDP("udp", from, to); return err }); err != nil {
		return nil, err
	}
	if err := setOption(p.conn, level, option, value); err != nil {
		return nil, errors.Join(err, p.conn.Close())
	}
	return p, nil
}

// sum makes an IPv4 socket send with or without UDP checksums.
func sum(conn *net.UDPConn, with bool) error {
	return setOption(conn, unix.SOL_SOCKET, unix.SO_NO_CHECK, map[bool]int{false: 1}[with])
}

func setOption(conn *net.UDPConn, level, option, value int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, value) })
	return errors.Join(err, set)
}

// crosses sends packets of all the sizes at once and returns the sizes that are
// answered. Sizes are in bytes, with the IP headers.
func (p *prober) crosses(ctx context.Context, k kind, sizes ...int) ([]int, error) {
	open := map[uint64]int{}
	var done []int
	for try := 0; try < tries && len(done) < len(sizes); try++ {
		for _, size := range sizes {
			if slices.Contains(done, size) {
				continue
			}
			p.number++
			open[p.number] = size
			if _, err := p.conn.Write(message(size-p.headers, p.number, k)); err != nil && !lost(err) {
				return done, fmt.Errorf("send %d bytes: %w", size, err)
			}
		}
		if err := p.hear(ctx, open, func(size int) bool {
			if !slices.Contains(done, size) {
				done = append(done, size)
			}
			return len(done) == len(sizes)
		}); err != nil {
			return done, err
		}
	}
	return done, nil
}

// lost reports whether the error is a result of the test, and not a failure of it:
// the packet is too large, or an ICMP error about an earlier packet arrived.
func lost(err error) bool {
	return errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ECONNREFUSED) ||
		errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}

// hear reads answers for the time wait, or until enough returns true.
func (p *prober) hear(ctx context.Context, open map[uint64]int, enough func(size int) bool) error {
	until := time.Now().Add(wait)
	if err := p.conn.SetReadDeadline(until); err != nil {
		return err
	}
	buf := make([]byte, 1<<16)
	for ctx.Err() == nil && time.Now().Before(until) {
		n, err := p.conn.Read(buf)
		if isTimeout(err) {
			return nil
		}
		if err != nil {
			continue // an ICMP error; a later answer may still arrive
		}
		number, k, whole, ok := parse(buf[:n])
		size, asked := open[number]
		if mtu, ok := mtuOf(buf[:n]); ok && asked {
			p.peerMTU = mtu
		}
		switch {
		case !ok || !asked:
		case !whole || k == damaged:
			p.corrupted++
		case enough(size):
			return nil
		}
	}
	return ctx.Err()
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// largest returns the largest size between small and large that is answered. small
// is answered, and large is not.
func (p *prober) largest(ctx context.Context, k kind, small, large int) (int, error) {
	const steps = 16
	for large-small > 1 {
		var sizes []int
		for step := 1; step < steps; step++ {
			size := small + (large-small)*step/steps
			if size > small && !slices.Contains(sizes, size) {
				sizes = append(sizes, size)
			}
		}
		passed, err := p.crosses(ctx, k, sizes...)
		if err != nil {
			return small, err
		}
		for _, size := range sizes {
			switch {
			case slices.Contains(passed, size):
				small = max(small, size)
			case size > small:
				large = min(large, size)
			}
		}
		if large <= small {
			return small, nil
		}
	}
	return small, nil
}
