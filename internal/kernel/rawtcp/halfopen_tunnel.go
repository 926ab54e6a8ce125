package rawtcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// HalfOpenByTunnel checks the same as HalfOpen, but sends the SYN through a tunnel.
// Routers may be between the host and the real server. The reply must arrive on the
// link that the host's route to the server uses. Returns ErrNotVirtual in the same
// cases as HalfOpen.
func (h *Handle) HalfOpenByTunnel(ctx context.Context, virtual netip.AddrPort, server netip.Addr,
	by model.Tunnel) error {
	route, err := h.rtnl.RouteTo(rtnl.RouteQuery{To: server})
	if err != nil {
		return fmt.Errorf("find the route to %s: %w", server, err)
	}
	if route.Type == unix.RTN_LOCAL {
		return h.checkListener(virtual)
	}
	var check *halfOpenCheck
	var tunnel int
	if err := h.ns.Do(func() (err error) {
		if check, err = openHalfOpen(route, virtual); err == nil {
			tunnel, err = openTunnelSocket(route.Src, by)
		}
		return err
	}); err != nil {
		if check != nil {
			err = errors.Join(err, check.close())
		}
		return fmt.Errorf("open a connection to %s at %s: %w", virtual, server, err)
	}
	defer check.close()
	defer unix.Close(tunnel)
	header := tunnelHeader(by, server.Is4())
	return check.try(ctx, func(segment []byte) error {
		return unix.Sendto(tunnel, append(header[:len(header):len(header)], segment...), 0,
			nlutil.Sockaddr(netip.AddrPortFrom(server, by.Port)))
	})
}

// tunnelHeader returns the bytes between the headers that the kernel adds (IP, for
// GUE also UDP) and the inner packet: the GUE header, or nothing.
func tunnelHeader(by model.Tunnel, v4 bool) []byte {
	switch {
	case by.Type != model.TunnelGUE:
		return nil
	case v4:
		return []byte{0, unix.IPPROTO_IPIP, 0, 0}
	}
	return []byte{0, unix.IPPROTO_IPV6, 0, 0}
}

// openTunnelSocket opens a socket that puts an outer IP header with that source
// address before each packet, and for GUE also a UDP header.
func openTunnelSocket(from netip.Addr, by model.Tunnel) (int, error) {
	family, protocol, kind := unix.AF_INET6, unix.IPPROTO_IPV6, unix.SOCK_RAW
	if from.Is4() {
		family, protocol = unix.AF_INET, unix.IPPROTO_IPIP
	}
	if by.Type == model.TunnelGUE {
		protocol, kind = unix.IPPROTO_UDP, unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, fmt.Errorf("open a socket for tunnelled packets: %w (root is needed)", err)
	}
	if err := unix.Bind(fd, nlutil.Sockaddr(netip.AddrPortFrom(from, 0))); err != nil {
		return -1, errors.Join(fmt.Errorf("bind a socket to %s: %w", from, err), unix.Close(fd))
	}
	if by.Type == model.TunnelGUE && by.Checksum == "" {
		if err := disableChecksum(fd, from.Is4()); err != nil {
			return -1, errors.Join(fmt.Errorf("send without a checksum: %w", err), unix.Close(fd))
		}
	}
	return fd, nil
}

// noCheck6 is UDP_NO_CHECK6_TX of linux/udp.h: send UDP over IPv6 without a
// checksum.
const noCheck6 = 101

// disableChecksum makes the socket send UDP without checksums, as the data planes
// do.
func disableChecksum(fd int, v4 bool) error {
	if v4 {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1)
	}
	return unix.SetsockoptInt(fd, unix.SOL_UDP, noCheck6, 1)
}
