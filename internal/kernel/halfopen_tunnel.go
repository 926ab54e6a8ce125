package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// HalfOpenByTunnel is HalfOpen for a real server that gets packets wrapped, by
// whatever way leads to it. Its answer must come by the link that leads there.
func (h *Host) HalfOpenByTunnel(ctx context.Context, virtual netip.AddrPort, server netip.Addr, by model.Tunnel) error {
	route, err := h.RouteTo(RouteQuery{To: server})
	if err != nil {
		return fmt.Errorf("find the way to %s: %w", server, err)
	}
	if route.Type == unix.RTN_LOCAL {
		return h.takes(virtual)
	}
	var ask *halfOpen
	var wraps int
	if err := h.ns.Do(func() (err error) {
		if ask, err = openHalf(route, virtual); err == nil {
			wraps, err = openWrapping(route.Src, by)
		}
		return err
	}); err != nil {
		if ask != nil {
			err = errors.Join(err, ask.close())
		}
		return fmt.Errorf("ask %s for a connection to %s: %w", server, virtual, err)
	}
	defer ask.close()
	defer unix.Close(wraps)
	before := headerOf(by, server.Is4())
	return ask.try(ctx, func(segment []byte) error {
		return unix.Sendto(wraps, append(before[:len(before):len(before)], segment...), 0, sockaddr(netip.AddrPortFrom(server, by.Port)))
	})
}

// headerOf is what is put before a packet of a family besides the outer IP and
// UDP headers: what GUE says of it.
func headerOf(by model.Tunnel, v4 bool) []byte {
	switch {
	case by.Type != model.TunnelGUE:
		return nil
	case v4:
		return []byte{0, unix.IPPROTO_IPIP, 0, 0}
	}
	return []byte{0, unix.IPPROTO_IPV6, 0, 0}
}

// openWrapping opens a socket that puts an IP header, from that address, before
// what it is given, and one of UDP for GUE.
func openWrapping(from netip.Addr, by model.Tunnel) (int, error) {
	family, protocol, kind := unix.AF_INET6, unix.IPPROTO_IPV6, unix.SOCK_RAW
	if from.Is4() {
		family, protocol = unix.AF_INET, unix.IPPROTO_IPIP
	}
	if by.Type == model.TunnelGUE {
		protocol, kind = unix.IPPROTO_UDP, unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, fmt.Errorf("open a socket for what is wrapped: %w (root is needed)", err)
	}
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(from, 0))); err != nil {
		return -1, errors.Join(fmt.Errorf("bind a socket to %s: %w", from, err), unix.Close(fd))
	}
	if by.Type == model.TunnelGUE && by.Checksum == "" {
		if err := sumNothing(fd, from.Is4()); err != nil {
			return -1, errors.Join(fmt.Errorf("send without a checksum: %w", err), unix.Close(fd))
		}
	}
	return fd, nil
}

// noCheck6 has datagrams over IPv6 go without a checksum (UDP_NO_CHECK6_TX of
// linux/udp.h).
const noCheck6 = 101

// sumNothing has datagrams of a socket go without a checksum, as the planes'.
func sumNothing(fd int, v4 bool) error {
	if v4 {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1)
	}
	return unix.SetsockoptInt(fd, unix.SOL_UDP, noCheck6, 1)
}
