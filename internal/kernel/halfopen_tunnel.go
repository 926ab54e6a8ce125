package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// HalfOpenByTunnel is HalfOpen for a real server that gets packets wrapped, by
// whatever way leads to it. Its answer must come by the link that leads there.
func (h *Host) HalfOpenByTunnel(ctx context.Context, virtual netip.AddrPort, server netip.Addr) error {
	route, err := h.RouteTo(RouteQuery{To: server})
	if err != nil {
		return fmt.Errorf("find the way to %s: %w", server, err)
	}
	var ask *halfOpen
	var wraps int
	if err := h.ns.Do(func() (err error) {
		if ask, err = openHalf(route, virtual); err == nil {
			wraps, err = openWrapping(route.Src)
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
	return ask.try(ctx, func(segment []byte) error {
		return unix.Sendto(wraps, segment, 0, sockaddr(netip.AddrPortFrom(server, 0)))
	})
}

// openWrapping opens a socket that puts an IP header, from that address, before
// the packets that it is given.
func openWrapping(from netip.Addr) (int, error) {
	family, protocol := unix.AF_INET6, unix.IPPROTO_IPV6
	if from.Is4() {
		family, protocol = unix.AF_INET, unix.IPPROTO_IPIP
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, fmt.Errorf("open a raw socket: %w (root is needed)", err)
	}
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(from, 0))); err != nil {
		return -1, errors.Join(fmt.Errorf("bind a raw socket to %s: %w", from, err), unix.Close(fd))
	}
	return fd, nil
}
